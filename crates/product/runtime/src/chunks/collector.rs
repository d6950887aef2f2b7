//! Thread that lists object names for a target, once the names have adopted a garbage collection
//! round (P8).

use crate::{Stop, Waker};
use nicekv_proto::chunk::{ChunkId, Round};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

/// Most batches that wait to be processed: listing need not be faster than marking.
const LISTS_MAX: usize = 4;
/// Pause after a failed listing.
const PAUSE: Duration = Duration::from_secs(1);

/// The thread's report to the target.
pub(super) enum Listed {
    /// A batch of chunks that object names need.
    Needs(Round, Vec<ChunkId>),
    /// All object names are listed.
    Whole(Round),
}

/// Lists all object names: passes the chunks that they need to the callback in batches, until it
/// returns `false`. Returns whether all names were listed.
pub type ListNames = Box<dyn FnMut(Round, &mut dyn FnMut(Vec<ChunkId>) -> bool) -> bool + Send>;

/// Handle of the thread; see the module documentation.
pub(super) struct Collector {
    wanted: Sender<Round>,
    pub(super) listed: Receiver<Listed>,
    asked: Round,
}

impl Collector {
    /// Starts the thread. It ends when the collector is dropped, or at the stop.
    pub(super) fn begin(name: &str, waker: Waker, stop: Stop, list: ListNames) -> io::Result<Self> {
        let (wanted, asked) = channel();
        let (tell, listed) = sync_channel(LISTS_MAX);
        let run = move || run(&asked, &Tell { tell, waker, stop }, list);
        std::thread::Builder::new().name(format!("{name}-collect")).spawn(run)?;
        Ok(Self { wanted, listed, asked: Round::default() })
    }

    /// Requests a list of all names, which have adopted this round; at most once per round.
    pub(super) fn want(&mut self, round: Round) {
        if self.asked < round {
            self.asked = round;
            // If the thread has ended, nothing is collected.
            let _ = self.wanted.send(round);
        }
    }
}

struct Tell {
    tell: SyncSender<Listed>,
    waker: Waker,
    stop: Stop,
}

impl Tell {
    /// Reports to the target. Returns whether the target still receives reports.
    fn tell(&self, listed: Listed) -> bool {
        let is_taken = !self.stop.is_stopped() && self.tell.send(listed).is_ok();
        self.waker.wake();
        is_taken
    }
}

fn run(asked: &Receiver<Round>, to: &Tell, mut list: ListNames) {
    while let Ok(first) = asked.recv() {
        let mut round = first;
        while !list(round, &mut |ids| to.tell(Listed::Needs(round, ids))) {
            if to.stop.is_stopped() {
                return;
            }
            match asked.recv_timeout(PAUSE) {
                Ok(newer) => round = newer,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        to.tell(Listed::Whole(round));
    }
}
