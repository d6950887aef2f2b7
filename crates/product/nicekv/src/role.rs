//! A role: one or more threads that run until the process stops, or stop it when they fail.

use crate::logs;
use nicekv_metrics::Source;
use nicekv_operator::failure::Failure;
use nicekv_runtime::Stop;
use std::io::Write;
use std::thread::JoinHandle;

/// A role that is ready to run until the stop; its error is one line.
pub(crate) type Role = Box<dyn FnOnce(&Stop) -> Result<(), String> + Send>;

/// A role, and where it may be asked how it is.
pub(crate) struct Prepared<R = Role> {
    pub(crate) role: R,
    pub(crate) source: Source,
}

/// Runs `role` on a thread of its own; none if there is none. Then, as if it fails or panics, the process is stopped.
pub(crate) fn spawn(
    stop: &Stop,
    name: &str,
    role: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Option<JoinHandle<()>> {
    struct FailOnPanic(Stop, String);
    impl Drop for FailOnPanic {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.fail(format!("{} has panicked", self.1));
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
    let why = |error| {
        format!("{name}: there is no thread for it, raise the limit of processes (ulimit -u): {error}")
    };
    spawned.map_err(|error| stop.fail(why(error))).ok()
}

/// Runs a role that was prepared on a thread of its own.
pub(crate) fn spawn_role(stop: &Stop, name: &str, role: Role) -> Option<JoinHandle<()>> {
    let owned = stop.clone();
    spawn(stop, name, move || role(&owned))
}

/// One line for whoever has started this; that nobody listens is no failure.
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

/// Waits for the stop and the end of all roles.
pub(crate) fn ended(stop: &Stop, threads: impl IntoIterator<Item = JoinHandle<()>>) -> Result<(), Failure> {
    stop.wait().map_err(Failure::operation)?;
    for thread in threads {
        // A panic was reported on its own thread, and is the stop's failure.
        let _ = thread.join();
    }
    stop.failure().map_or(Ok(()), |failure| Err(Failure::Operation(failure)))
}
