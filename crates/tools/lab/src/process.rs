//! Processes of a lab: detached, recorded by pid and start time, found again by their namespace.
//!
//! The kernel reuses pids, so a pid alone does not identify a process. Before a process is killed,
//! a pidfd is opened and the start time compared, so no other process is ever killed.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, setsid};
use serde::{Deserialize, Serialize};

use crate::error::{LabError, Result};
use crate::namespace::{self, Identity, Namespace};

/// Maximum time until a killed process has ended.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of times to look for further processes: one may start another just before it is
/// killed.
const KILL_ROUNDS_MAX: usize = 100;

/// Identifies a process even after it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pub(crate) pid: i32,
    /// When it was started, in clock ticks after boot (`/proc/PID/stat`, field 22).
    pub(crate) started_ticks: u64,
}

impl ProcessId {
    /// The process that has this pid now; `None` also for a zombie.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Field 2 is a name in parentheses, which may itself contain parentheses; the last one ends
        // it.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?;
        let started_ticks = fields.nth(18)?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then_some(Self { pid, started_ticks })
    }

    pub(crate) fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Kills the process with SIGKILL and waits until it has ended. False if it had ended already.
    pub(crate) fn kill(self) -> Result<bool> {
        let system = || LabError::system(format!("kill process {}", self.pid));
        let Some(handle) = self.hold().map_err(system())? else { return Ok(false) };
        pidfd_send_signal(&handle, Signal::KILL).map_err(io::Error::from).map_err(system())?;
        match wait_exit(&handle, KILL_TIMEOUT).map_err(system())? {
            true => Ok(true),
            false => Err(LabError::KillTimeout { pid: self.pid }),
        }
    }

    /// Stops the process with SIGSTOP until [`ProcessId::resume`]. False if it has ended.
    pub(crate) fn pause(self) -> Result<bool> {
        self.signal("pause", Signal::STOP)
    }

    /// Continues the process. False if it has ended.
    pub(crate) fn resume(self) -> Result<bool> {
        self.signal("resume", Signal::CONT)
    }

    /// Whether the process is paused.
    pub(crate) fn is_paused(self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, fields)| fields.trim_start().starts_with('T'))
            && self.is_alive()
    }

    fn signal(self, verb: &str, signal: Signal) -> Result<bool> {
        let system = || LabError::system(format!("{verb} process {}", self.pid));
        let Some(handle) = self.hold().map_err(system())? else { return Ok(false) };
        pidfd_send_signal(&handle, signal).map_err(io::Error::from).map_err(system())?;
        Ok(true)
    }

    /// Whether the process ends within `timeout`.
    pub(crate) fn ends_within(self, timeout: Duration) -> Result<bool> {
        let system = || LabError::system(format!("watch process {}", self.pid));
        match self.hold().map_err(system())? {
            None => Ok(true),
            Some(handle) => wait_exit(&handle, timeout).map_err(system()),
        }
    }

    /// A pidfd of the process; `None` if it has ended.
    fn hold(self) -> io::Result<Option<impl std::os::fd::AsFd>> {
        let pid = Pid::from_raw(self.pid).ok_or(io::ErrorKind::InvalidInput)?;
        match pidfd_open(pid, PidfdFlags::empty()) {
            Err(rustix::io::Errno::SRCH) => Ok(None),
            handle => Ok(Some(handle?).filter(|_| self.is_alive())),
        }
    }
}

/// Whether the process behind a pidfd ends within `timeout`.
pub(crate) fn wait_exit(handle: &impl std::os::fd::AsFd, timeout: Duration) -> io::Result<bool> {
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    Ok(poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&timeout))? > 0)
}

/// Kills processes all at once, like a power loss. False if one of them had ended already.
pub(crate) fn kill_together(processes: &[ProcessId]) -> Result<bool> {
    let system = || LabError::system("kill all processes");
    let handles: Vec<_> = processes
        .iter()
        .map(|process| Ok((process.pid, process.hold().map_err(system())?)))
        .collect::<Result<_>>()?;
    let running = || handles.iter().filter_map(|(pid, handle)| Some((*pid, handle.as_ref()?)));
    for (_, handle) in running() {
        pidfd_send_signal(handle, Signal::KILL).map_err(io::Error::from).map_err(system())?;
    }
    for (pid, handle) in running() {
        // Waits by the pidfd: `/proc` shows a process as dead before all of its threads have ended.
        if !wait_exit(handle, KILL_TIMEOUT).map_err(system())? {
            return Err(LabError::KillTimeout { pid });
        }
    }
    Ok(running().count() == processes.len())
}

/// Starts a process in a namespace, in a session of its own. Its output is appended to `log`.
pub(crate) fn spawn_detached(
    namespace: &Namespace,
    program: &Path,
    arguments: &[&str],
    log: &Path,
) -> Result<ProcessId> {
    let output = File::options().create(true).append(true).open(log).map_err(LabError::io("open", log))?;
    let errors = output.try_clone().map_err(LabError::io("open", log))?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir("/").stdin(Stdio::null()).stdout(output).stderr(errors);
    move_before_exec(&mut command, namespace.open()?);
    let child = command.spawn().map_err(LabError::io("start", program))?;
    let pid = child.id() as i32;
    // If the child has ended at once, its pid is still not reused, since this process has not
    // waited for it.
    Ok(ProcessId::of(pid).unwrap_or(ProcessId { pid, started_ticks: 0 }))
}

#[allow(unsafe_code, reason = "a hook between fork and exec")]
fn move_before_exec(command: &mut Command, namespace: File) {
    let hook = move || {
        namespace::enter(&namespace)?;
        setsid()?;
        Ok(())
    };
    // SAFETY: the hook makes two system calls and touches no memory that another thread may have
    // locked.
    unsafe { command.pre_exec(hook) };
}

/// Kills every process in `namespaces`, recorded or not, and waits until all have ended.
pub(crate) fn kill_all(namespaces: &[Namespace]) -> Result<()> {
    let identities: Vec<Identity> = namespaces.iter().filter_map(Namespace::identity).collect();
    for _ in 0..KILL_ROUNDS_MAX {
        let processes = processes_in(&identities)?;
        if processes.is_empty() {
            return Ok(());
        }
        for process in processes {
            process.kill()?;
        }
    }
    Err(LabError::ProcessesRemain { rounds: KILL_ROUNDS_MAX })
}

/// The processes in these namespaces, except this one.
fn processes_in(namespaces: &[Identity]) -> Result<Vec<ProcessId>> {
    let entries = fs::read_dir("/proc").map_err(LabError::io("list", Path::new("/proc")))?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let found = pids.filter(|pid| *pid != std::process::id() as i32).filter_map(|pid| {
        // The order matters: if the pid is reused in between, the next round finds the new process.
        let process = ProcessId::of(pid)?;
        let namespace = Identity::of_process(pid)?;
        namespaces.contains(&namespace).then_some(process)
    });
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_processes_with_the_same_pid_and_zombies_are_not_alive() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let process = ProcessId::of(child.id() as i32).unwrap();
        assert!(process.is_alive());
        assert!(!process.ends_within(Duration::ZERO).unwrap());
        let other = ProcessId { started_ticks: process.started_ticks + 1, ..process };
        assert!(!other.is_alive());
        assert!(!other.kill().unwrap());
        assert!(process.is_alive(), "a later process of the same pid is left alone");
        assert!(process.pause().unwrap());
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while !process.is_paused() {
            assert!(std::time::Instant::now() < deadline, "the kernel does not stop it");
            std::thread::yield_now();
        }
        assert!(process.is_alive() && process.resume().unwrap() && !process.is_paused());
        assert!(process.kill().unwrap());
        assert!(!process.is_alive(), "a zombie is dead");
        assert!(!process.kill().unwrap());
        child.wait().unwrap();
    }
}
