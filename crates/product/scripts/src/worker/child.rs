//! The worker process: it runs one script after the other, confined by the kernel.

use super::confine;
use super::message::{self, Job};
use crate::LuaScripts;
use nicekv_replica::LentKeys;
use nicekv_replica::{ScriptCall, ScriptEnd};
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A script that uses less than this fraction (1/N) of its CPU time ends in the same way on other
/// machines.
const SURE_PART: u32 = 8;
/// Maximum bytes of the keys that a script has written: far more than a decision can hold.
const WRITTEN_BYTES_MAX: usize = 4 << 20;

/// Runs the scripts that arrive on standard input, which is a socket, until it is closed.
pub fn serve() -> io::Result<()> {
    let mut node = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    crate::sandbox::warm_up();
    confine::confine()?;
    while let Some(request) = message::read(&node)? {
        let job = Job::decode(&request).map_err(io::Error::other)?;
        let mut keys = LentKeys::decode(job.states).map_err(io::Error::other)?;
        let end = run(&job, &mut keys)?;
        let mut written = Vec::new();
        if !end.has_failed {
            keys.append_written(&mut written);
        }
        let answer = match written.len() {
            ..=WRITTEN_BYTES_MAX => message::outcome(&end, |out| out.append(&mut written)),
            _ => message::outcome(&writes_too_much(), |_| {}),
        };
        node.write_all(&answer)?;
    }
    Ok(())
}

fn run(job: &Job<'_>, keys: &mut LentKeys<'_>) -> io::Result<ScriptEnd> {
    let &Job { cpu_ms, unix_ms, is_read_only, source, arguments, .. } = job;
    let call = ScriptCall { unix_ms, is_read_only, source, keys: &job.keys, arguments };
    let bound = Duration::from_millis(cpu_ms.into());
    let before = processor_time();
    // The kernel kills the process if it exceeds this CPU time.
    confine::set_cpu_bound(bound)?;
    let end = LuaScripts.run(&call, keys);
    confine::set_cpu_bound(Duration::ZERO)?;
    let took = processor_time().saturating_sub(before);
    Ok(ScriptEnd { may_differ: took * SURE_PART > bound, ..end })
}

fn writes_too_much() -> ScriptEnd {
    let reply = format!("-ERR the script writes more than {WRITTEN_BYTES_MAX} bytes\r\n").into_bytes();
    ScriptEnd { reply, has_failed: true, may_differ: false }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
