//! Two threads for one node, of which one leads: so that the leader may force the log itself, and a disk that stalls stops nobody.
//!
//! ```text
//!   leads ──▶ turn, turn, turn ──▶ park the node ─▶ force ─▶ take it back ──▶ turn …          most forces: no switch of threads
//!                                        │            └────▶ it is gone: stand by …           the disk stalls
//!   stands by ───── looks now and then ──┴─▶ parked for too long: takes it, leads ─▶ turn …
//! ```
//!
//! A force by another thread costs two switches, which with one caller is much of a put. A force by the leader keeps the node from its
//! heartbeats; so it is bounded: after [`PATIENCE`] to twice that the other thread goes on with the node (docs/FAULTS.md row 8), and
//! its forces wait for the one that is held up. Whether a force is likely to be quick is judged before, by those before it.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// So long a force may keep the node; a fraction of what separates two heartbeats.
const PATIENCE: Duration = Duration::from_millis(10);
/// Who stands by goes on looking for so many times after the last force; then it sleeps until the next one.
const LOOKS_AFTER_FORCE: u32 = 10;

/// Work that one thread at a time does.
pub(super) trait Led: Send {
    /// Its failure.
    type Error: Send;
    /// What may hold up whoever does it, and is done without the rest.
    type Force;

    /// Works until there is something to force here (`Some`), or the end (`None`).
    fn lead(&mut self) -> Result<Option<Self::Force>, Self::Error>;

    /// Forces. Meanwhile the work may be led elsewhere.
    fn force(force: &Self::Force);

    /// Has been forced here, and nobody else has led meanwhile.
    fn forced(&mut self);

    /// Has been forced, and the work is led elsewhere: it is to hear of it.
    fn overtaken(force: &Self::Force);
}

/// Where the node is while its leader forces.
struct Helm<T> {
    seat: Mutex<Seat<T>>,
    changed: Condvar,
}

struct Seat<T> {
    parked: Option<(T, Instant)>,
    /// Looks that are left until who stands by sleeps.
    looks: u32,
    is_asleep: bool,
    closed: bool,
}

/// Ends the waiting of who stands by, whatever ends who leads.
struct Closing<'a, T>(&'a Helm<T>);

/// Leads `work` to its end, on this thread and one that stands by.
pub(super) fn run<T: Led>(work: T) -> Result<(), T::Error> {
    let seat = Seat { parked: None, looks: 0, is_asleep: false, closed: false };
    let helm = Helm { seat: Mutex::new(seat), changed: Condvar::new() };
    let name = std::thread::current().name().unwrap_or("node").to_owned();
    std::thread::scope(|scope| {
        let stand_in = std::thread::Builder::new().name(name);
        // Without a second thread the node does nothing else during an fsync.
        let stand_in = stand_in.spawn_scoped(scope, || serve(&helm, None)).ok();
        let led = serve(&helm, Some(work));
        let ended = stand_in.map(|it| it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        led.and(ended.unwrap_or(Ok(())))
    })
}

/// Leads whenever this thread has the work, until that ends.
fn serve<T: Led>(helm: &Helm<T>, mut work: Option<T>) -> Result<(), T::Error> {
    let _closing = Closing(helm);
    while let Some(mut led) = work.take().or_else(|| helm.stand_by()) {
        let Some(force) = led.lead()? else { return Ok(()) };
        helm.park(led);
        T::force(&force);
        work = helm.take_back();
        match &mut work {
            Some(led) => led.forced(),
            None => T::overtaken(&force),
        }
    }
    Ok(())
}

impl<T> Helm<T> {
    fn seat(&self) -> MutexGuard<'_, Seat<T>> {
        self.seat.lock().expect("no holder of this lock panics")
    }

    fn park(&self, work: T) {
        let mut seat = self.seat();
        seat.parked = Some((work, Instant::now()));
        seat.looks = LOOKS_AFTER_FORCE;
        if seat.is_asleep {
            self.changed.notify_one();
        }
    }

    fn take_back(&self) -> Option<T> {
        self.seat().parked.take().map(|(work, _)| work)
    }

    /// The work once it has been parked for too long; `None` when it has ended.
    fn stand_by(&self) -> Option<T> {
        let mut seat = self.seat();
        while !seat.closed {
            let is_late = |(_, since): &mut (T, Instant)| since.elapsed() >= PATIENCE;
            if let Some((work, _)) = seat.parked.take_if(is_late) {
                return Some(work);
            }
            seat = if seat.looks > 0 {
                seat.looks -= 1;
                self.changed.wait_timeout(seat, PATIENCE).expect("no holder of this lock panics").0
            } else {
                seat.is_asleep = true;
                let mut seat = self.changed.wait(seat).expect("no holder of this lock panics");
                seat.is_asleep = false;
                seat
            };
        }
        None
    }
}

impl<T> Drop for Closing<'_, T> {
    fn drop(&mut self) {
        self.0.seat().closed = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread::ThreadId;

    /// A hang becomes a failure.
    const LIMIT: Duration = Duration::from_secs(20);

    /// Work of some turns, each with a force that is held up until the turn that frees it, if there is one.
    struct Turns {
        made: u32,
        count: u32,
        /// The force of this turn is held up until the turn after.
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
        type Force = Held;

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

        fn force(force: &Held) {
            let (progress, changed) = &*force.progress;
            let waits = |made: &mut u32| *made < force.until;
            let waited = changed.wait_timeout_while(progress.lock().unwrap(), LIMIT, waits).unwrap();
            assert!(!waited.1.timed_out(), "nobody goes on");
        }

        fn forced(&mut self) {}

        fn overtaken(force: &Held) {
            force.told.fetch_add(1, Ordering::Relaxed);
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
    fn the_other_thread_goes_on_when_a_force_is_held_up() {
        let (ended, threads, told) = turns(20, 10, false);
        assert_eq!(ended, Ok(()));
        let made: Vec<u32> = threads.iter().map(|(turn, _)| *turn).collect();
        assert_eq!(made, (1..=20).collect::<Vec<_>>(), "each turn once, in order");
        assert_ne!(threads[9].1, threads[10].1, "the force of turn 10 waits for turn 11");
        assert!(told >= 1, "the leader hears of the force");
    }

    #[test]
    fn the_end_is_told_whoever_leads() {
        assert_eq!(turns(3, 0, false).0, Ok(()));
        assert_eq!(turns(3, 0, true).0, Err("failed"));
        // Whoever stands by leads at the end, and fails.
        assert_eq!(turns(3, 3 - 1, true).0, Err("failed"));
    }
}
