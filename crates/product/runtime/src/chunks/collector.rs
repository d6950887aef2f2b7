//! The thread that lists names for a target, when they have adopted a round of garbage collection (P8).

use crate::{Stop, Waker};
use nicekv_proto::chunk::{ChunkId, Round};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

/// Lists that wait to be taken: names are listed no faster than the target marks what they need.
const LISTS_MAX: usize = 4;
/// After a listing that has failed.
const PAUSE: Duration = Duration::from_secs(1);

/// What names say.
pub(super) enum Listed {
    /// They need these.
    Needs(Round, Vec<ChunkId>),
    /// That was all.
    Whole(Round),
}

/// Lists all names of objects: hands over the chunks that they need, some at a time, until it is told that nobody wants to know any more. Whether it has come to the end.
pub type ListNames = Box<dyn FnMut(Round, &mut dyn FnMut(Vec<ChunkId>) -> bool) -> bool + Send>;

/// See the module.
pub(super) struct Collector {
    wanted: Sender<Round>,
    pub(super) listed: Receiver<Listed>,
    asked: Round,
}

impl Collector {
    /// The thread ends with the collector, or at the stop.
    pub(super) fn begin(name: &str, waker: Waker, stop: Stop, list: ListNames) -> io::Result<Self> {
        let (wanted, asked) = channel();
        let (tell, listed) = sync_channel(LISTS_MAX);
        let run = move || run(&asked, &Tell { tell, waker, stop }, list);
        std::thread::Builder::new().name(format!("{name}-collect")).spawn(run)?;
        Ok(Self { wanted, listed, asked: Round::default() })
    }

    /// All names have adopted this round: they are to be listed, once.
    pub(super) fn want(&mut self, round: Round) {
        if self.asked < round {
            self.asked = round;
            // Without the thread nothing is collected.
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
    /// Whether somebody has taken it.
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
