//! Independent jobs on all processors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs `work` on each job; the results are in the order of the jobs, whatever the number of
/// processors. The slowest jobs should come first.
pub(crate) fn map<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(jobs.iter().map(|_| None).collect::<Vec<Option<R>>>());
    let run = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(place) else { return };
            let result = work(job);
            results.lock().expect("no thread panics while it holds the lock")[place] = Some(result);
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
        (0..threads).for_each(|_| drop(scope.spawn(run)));
    });
    let results = results.into_inner().expect("all threads have ended");
    results.into_iter().map(|result| result.expect("every job was taken")).collect()
}
