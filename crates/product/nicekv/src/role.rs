//! A role: one or more threads that run until the process stops. A role that fails stops the
//! process.

use crate::logs;
use nicekv_metrics::Source;
use nicekv_operator::failure::Failure;
use nicekv_runtime::Stop;
use std::io::Write;
use std::thread::JoinHandle;

/// A prepared role; calling it runs the role until the process stops. Its error is one line.
pub(crate) type Role = Box<dyn FnOnce(&Stop) -> Result<(), String> + Send>;

/// A role, and the source of its metrics.
pub(crate) struct Prepared<R = Role> {
    pub(crate) role: R,
    pub(crate) source: Source,
}

/// Spawns a thread for a role. The process is stopped if the role fails or panics, or if the thread cannot be spawned.
pub(crate) fn spawn(
    stop: &Stop,
    name: &str,
    role: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Option<JoinHandle<()>> {
    struct FailOnPanic(Stop, String);
    impl Drop for FailOnPanic {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.fail(format!("{} panicked", self.1));
            }
        }
    }
    let guard = FailOnPanic(stop.clone(), name.to_owned());
    let run = move || {
        let FailOnPanic(stop, name) = &guard;
        if let Err(error) = role() {
            stop.fail(format!("{name}: {error}"));
        }
    };
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    let why = |error| format!("{name}: cannot spawn a thread: {error}; raise the process limit (ulimit -u)");
    spawned.map_err(|error| stop.fail(why(error))).ok()
}

/// Spawns a thread for a prepared role.
pub(crate) fn spawn_role(stop: &Stop, name: &str, role: Role) -> Option<JoinHandle<()>> {
    let owned = stop.clone();
    spawn(stop, name, move || role(&owned))
}

/// Prints a line on standard output, or logs it if events are JSON; a closed pipe is not an error.
pub(crate) fn say(line: std::fmt::Arguments<'_>) -> Result<(), Failure> {
    if logs::is_json() {
        log::info!(text = line.to_string().as_str(); "said");
        return Ok(());
    }
    let mut out = std::io::stdout();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::environment(error)),
        _ => Ok(()),
    }
}

/// Waits until the process is stopped and all threads have ended. Fails if a role failed.
pub(crate) fn ended(stop: &Stop, threads: impl IntoIterator<Item = JoinHandle<()>>) -> Result<(), Failure> {
    stop.wait().map_err(Failure::operation)?;
    for thread in threads {
        // If the thread panicked, `stop` has its failure.
        let _ = thread.join();
    }
    stop.failure().map_or(Ok(()), |failure| Err(Failure::Operation(failure)))
}
