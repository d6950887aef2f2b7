//! Hand-off of a node between two threads, so that the leading thread can sync the log itself, and
//! a stalled disk does not stop the node.
//!
//! ```text
//!   leads ──▶ turn, turn, turn ──▶ park the node ─▶ sync ─▶ take it back ──▶ turn …          most syncs: no thread switch
//!                                        │            └────▶ it was taken: stand by …         the disk stalls
//!   stands by ───── checks at intervals ──┴─▶ parked for too long: takes it, leads ─▶ turn …
//! ```
//!
//! A sync on another thread costs two thread switches, which with one caller is a large part of a
//! put's latency. A sync on the leading thread delays the node's heartbeats, so it is bounded:
//! after [`SYNC_HOLD_MAX`] to twice that, the other thread takes over the node (docs/FAULTS.md row
//! 8), and its syncs wait for the stalled one. The node predicts from earlier syncs whether a sync
//! will be quick.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Longest time for which a sync may hold the node; a fraction of the heartbeat interval.
const SYNC_HOLD_MAX: Duration = Duration::from_millis(10);
/// Number of checks that the standby thread makes after the last sync; then it sleeps until the
/// next sync.
const CHECKS_AFTER_SYNC: u32 = 10;

/// Work that two threads do in turns, one at a time.
pub(super) trait Led: Send {
    /// Why the work failed.
    type Error: Send;
    /// A sync, which may block. It runs without access to the rest of the work.
    type Sync;

    /// Works until this thread must make a sync (`Some`), or until the work has ended (`None`).
    fn lead(&mut self) -> Result<Option<Self::Sync>, Self::Error>;

    /// Makes the sync. The other thread may take over the work meanwhile.
    fn sync(sync: &Self::Sync);

    /// Called after a sync on this thread if the other thread has not taken over.
    fn synced(&mut self);

    /// Called after a sync on a thread that no longer leads; it must notify the leading thread.
    fn synced_elsewhere(sync: &Self::Sync);
}

/// Holds the work while the leading thread syncs.
struct HandOff<T> {
    parked_work: Mutex<Parked<T>>,
    changed: Condvar,
}

struct Parked<T> {
    parked: Option<(T, Instant)>,
    /// Remaining checks before the standby thread sleeps.
    checks: u32,
    is_asleep: bool,
    closed: bool,
}

/// Ends the standby thread when the leading thread returns or panics.
struct Closing<'a, T>(&'a HandOff<T>);

/// Runs `work` until it ends, on this thread and a standby thread.
pub(super) fn run<T: Led>(work: T) -> Result<(), T::Error> {
    let parked_work = Parked { parked: None, checks: 0, is_asleep: false, closed: false };
    let hand_off = HandOff { parked_work: Mutex::new(parked_work), changed: Condvar::new() };
    let name = std::thread::current().name().unwrap_or("node").to_owned();
    std::thread::scope(|scope| {
        let stand_in = std::thread::Builder::new().name(name);
        // If no second thread is available, the node does nothing during a sync.
        let stand_in = stand_in.spawn_scoped(scope, || serve(&hand_off, None)).ok();
        let led = serve(&hand_off, Some(work));
        let ended = stand_in.map(|it| it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        led.and(ended.unwrap_or(Ok(())))
    })
}

/// Does the work whenever this thread has it, until it ends.
fn serve<T: Led>(hand_off: &HandOff<T>, mut work: Option<T>) -> Result<(), T::Error> {
    let _closing = Closing(hand_off);
    while let Some(mut led) = work.take().or_else(|| hand_off.stand_by()) {
        let Some(sync) = led.lead()? else { return Ok(()) };
        hand_off.park(led);
        T::sync(&sync);
        work = hand_off.take_back();
        match &mut work {
            Some(led) => led.synced(),
            None => T::synced_elsewhere(&sync),
        }
    }
    Ok(())
}

impl<T> HandOff<T> {
    fn parked_work(&self) -> MutexGuard<'_, Parked<T>> {
        self.parked_work.lock().expect("no holder of this lock panics")
    }

    fn park(&self, work: T) {
        let mut parked_work = self.parked_work();
        parked_work.parked = Some((work, Instant::now()));
        parked_work.checks = CHECKS_AFTER_SYNC;
        if parked_work.is_asleep {
            self.changed.notify_one();
        }
    }

    fn take_back(&self) -> Option<T> {
        self.parked_work().parked.take().map(|(work, _)| work)
    }

    /// Takes the work once it has been parked for too long. Returns `None` once the work has ended.
    fn stand_by(&self) -> Option<T> {
        let mut parked_work = self.parked_work();
        while !parked_work.closed {
            let is_late = |(_, since): &mut (T, Instant)| since.elapsed() >= SYNC_HOLD_MAX;
            if let Some((work, _)) = parked_work.parked.take_if(is_late) {
                return Some(work);
            }
            parked_work = if parked_work.checks > 0 {
                parked_work.checks -= 1;
                self.changed
                    .wait_timeout(parked_work, SYNC_HOLD_MAX)
                    .expect("no holder of this lock panics")
                    .0
            } else {
                parked_work.is_asleep = true;
                let mut parked_work = self.changed.wait(parked_work).expect("no holder of this lock panics");
                parked_work.is_asleep = false;
                parked_work
            };
        }
        None
    }
}

impl<T> Drop for Closing<'_, T> {
    fn drop(&mut self) {
        self.0.parked_work().closed = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread::ThreadId;

    /// Turns a hang into a failure.
    const LIMIT: Duration = Duration::from_secs(20);

    /// Work of several turns. The sync of each turn stalls until the turn that releases it, if any.
    struct Turns {
        made: u32,
        count: u32,
        /// The sync of this turn stalls until the next turn begins.
        held: u32,
        progress: Arc<(Mutex<u32>, Condvar)>,
        threads: Vec<(u32, ThreadId)>,
        told: Arc<AtomicU32>,
        seen: std::sync::mpsc::Sender<Vec<(u32, ThreadId)>>,
        fails: bool,
    }

    struct Held {
        until: u32,
        progress: Arc<(Mutex<u32>, Condvar)>,
        told: Arc<AtomicU32>,
    }

    impl Led for Turns {
        type Error = &'static str;
        type Sync = Held;

        fn lead(&mut self) -> Result<Option<Held>, &'static str> {
            if self.made == self.count {
                self.seen.send(std::mem::take(&mut self.threads)).unwrap();
                return if self.fails { Err("failed") } else { Ok(None) };
            }
            self.made += 1;
            self.threads.push((self.made, std::thread::current().id()));
            *self.progress.0.lock().unwrap() = self.made;
            self.progress.1.notify_all();
            let until = if self.made == self.held { self.made + 1 } else { 0 };
            Ok(Some(Held { until, progress: self.progress.clone(), told: self.told.clone() }))
        }

        fn sync(sync: &Held) {
            let (progress, changed) = &*sync.progress;
            let waits = |made: &mut u32| *made < sync.until;
            let waited = changed.wait_timeout_while(progress.lock().unwrap(), LIMIT, waits).unwrap();
            assert!(!waited.1.timed_out(), "no thread continues the work");
        }

        fn synced(&mut self) {}

        fn synced_elsewhere(sync: &Held) {
            sync.told.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn turns(count: u32, held: u32, fails: bool) -> (Result<(), &'static str>, Vec<(u32, ThreadId)>, u32) {
        let (seen, threads) = std::sync::mpsc::channel();
        let (progress, told) = (Arc::default(), Arc::new(AtomicU32::new(0)));
        let work = Turns { made: 0, count, held, progress, threads: vec![], told: told.clone(), seen, fails };
        let ended = run(work);
        (ended, threads.recv().unwrap(), told.load(Ordering::Relaxed))
    }

    #[test]
    fn standby_thread_takes_over_during_a_stalled_sync() {
        let (ended, threads, told) = turns(20, 10, false);
        assert_eq!(ended, Ok(()));
        let made: Vec<u32> = threads.iter().map(|(turn, _)| *turn).collect();
        assert_eq!(made, (1..=20).collect::<Vec<_>>(), "each turn once, in order");
        assert_ne!(threads[9].1, threads[10].1, "the sync of turn 10 stalls until turn 11");
        assert!(told >= 1, "the leading thread was not notified of the sync");
    }

    #[test]
    fn work_ends_on_either_thread() {
        assert_eq!(turns(3, 0, false).0, Ok(()));
        assert_eq!(turns(3, 0, true).0, Err("failed"));
        // The standby thread takes over, and fails.
        assert_eq!(turns(3, 3 - 1, true).0, Err("failed"));
    }
}
