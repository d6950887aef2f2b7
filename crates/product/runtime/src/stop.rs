//! Stops all roles of a process together.

use crate::Waker;
use nicekv_proto::Duration;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// Stop flag that the roles of a process share: once it is set, each role leaves its loop. The
/// first failure is kept as the reason.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    shared: Arc<Mutex<Shared>>,
    flag: Arc<std::sync::atomic::AtomicBool>,
}

#[derive(Debug, Default)]
struct Shared {
    failure: Option<String>,
    wakers: Vec<Waker>,
}

impl Stop {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the roles must end.
    pub fn is_stopped(&self) -> bool {
        self.flag.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Stops the roles, without a failure.
    pub fn stop(&self) {
        self.flag.store(true, std::sync::atomic::Ordering::Release);
        for waker in &self.locked().wakers {
            waker.wake();
        }
    }

    /// Stops the roles because of `failure`, one line for the operator.
    pub fn fail(&self, failure: impl Into<String>) {
        self.locked().failure.get_or_insert(failure.into());
        self.stop();
    }

    /// The failure, if any.
    pub fn failure(&self) -> Option<String> {
        self.locked().failure.clone()
    }

    /// Registers a waker that the stop will wake. It is woken at once if the roles were stopped
    /// already.
    pub fn register(&self, waker: &Waker) {
        self.locked().wakers.push(waker.clone());
        if self.is_stopped() {
            waker.wake();
        }
    }

    /// Sleeps until the stop.
    pub fn wait(&self) -> io::Result<()> {
        let waker = Waker::new()?;
        self.register(&waker);
        while !self.is_stopped() {
            crate::wait(&mut [crate::readable(&waker)], None)?;
        }
        Ok(())
    }

    /// Calls `act` every `pause` until the stop.
    pub fn every(&self, pause: Duration, mut act: impl FnMut()) -> io::Result<()> {
        let waker = Waker::new()?;
        self.register(&waker);
        while !self.is_stopped() {
            act();
            crate::wait(&mut [crate::readable(&waker)], Some(crate::now().after(pause)))?;
        }
        Ok(())
    }

    /// From now on SIGINT (Ctrl-C) and SIGTERM stop the roles; a second signal ends the process at
    /// once.
    pub fn on_signals(&self) -> io::Result<()> {
        for signal in [SIGINT, SIGTERM] {
            // This handler is registered first, so that it checks the flag before the same signal
            // sets it.
            signal_hook::flag::register_conditional_shutdown(signal, 1, self.flag.clone())?;
        }
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
        let stop = self.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for _ in signals.forever() {
                stop.stop();
            }
        })?;
        Ok(())
    }

    fn locked(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_stops_all_roles_and_the_first_is_kept() {
        let stop = Stop::new();
        let other = {
            let stop = stop.clone();
            std::thread::spawn(move || stop.wait())
        };
        stop.fail("the disk is gone");
        stop.fail("and then the network");
        other.join().unwrap().unwrap();
        assert_eq!(stop.failure().as_deref(), Some("the disk is gone"));
        // A waker that is registered after the stop is woken at once.
        stop.wait().unwrap();
    }
}
