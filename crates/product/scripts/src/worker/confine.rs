//! Confines a worker before its first script: it gives up access to files, other processes,
//! privileges, and memory beyond a bound.
//!
//! A script that escapes from the interpreter can then compute, and write to the socket of its
//! node, but nothing else.

#![allow(unsafe_code, reason = "prctl(PR_SET_SECCOMP) and setitimer(2) have no safe wrapper")]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::time::Duration;

/// Memory in addition to what is mapped at the start: 16 MiB for a script, several copies of its
/// keys, and replies.
const MEMORY_BYTES_MAX: u64 = 256 << 20;

/// The worker's `oom_score_adj`: if memory runs out, the kernel should kill it before other
/// processes.
const OOM_SCORE: &str = "500";

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// The system calls that a worker needs: for messages, memory, its clock and timer, and its exit.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const ALLOWED: [libc::c_long; 25] = [
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_sendto,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_setitimer,
    libc::SYS_getrandom,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_tgkill,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Confines this process permanently.
pub(super) fn confine() -> io::Result<()> {
    // If memory runs out, the worker should be killed first. Writing this is not always permitted.
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let mapped = mapped_bytes()?;
    for (resource, limit) in [
        (Resource::Core, none),
        (Resource::Fsize, none),
        (Resource::Nofile, none),
        (Resource::Nproc, none),
        (Resource::As, at_most(Resource::As, mapped + MEMORY_BYTES_MAX)),
    ] {
        setrlimit(resource, limit)?;
    }
    rustix::thread::set_no_new_privs(true)?;
    filter_system_calls()
}

fn at_most(resource: Resource, bytes: u64) -> Rlimit {
    let maximum = getrlimit(resource).maximum.map_or(bytes, |maximum| maximum.min(bytes));
    Rlimit { current: Some(maximum), maximum: Some(maximum) }
}

fn mapped_bytes() -> io::Result<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages = pages.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    Ok(pages.ok_or(io::ErrorKind::InvalidData)? * rustix::param::page_size() as u64)
}

/// Makes the kernel end the process once it has used this much more CPU time; zero: no limit.
pub(super) fn set_cpu_bound(bound: Duration) -> io::Result<()> {
    let value =
        libc::timeval { tv_sec: bound.as_secs() as libc::time_t, tv_usec: bound.subsec_micros().into() };
    let interval = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let timer = libc::itimerval { it_interval: interval, it_value: value };
    // SAFETY: the call reads one structure and writes none.
    let result = unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The signal that ends a process at its limit.
pub(super) const CPU_BOUND_SIGNAL: i32 = libc::SIGPROF;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn filter_system_calls() -> io::Result<()> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let load = |offset: u32| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    let skip_one_if = |k: u32| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: 1,
        jf: 0,
        k,
    };
    let give = |action: u32| statement(libc::BPF_RET | libc::BPF_K, action);
    let (allow, end) = (give(libc::SECCOMP_RET_ALLOW), give(libc::SECCOMP_RET_KILL_PROCESS));
    // `seccomp_data` begins with the number of the system call, followed by the architecture.
    let mut program = vec![load(4), skip_one_if(ARCHITECTURE), end, load(0)];
    for call in ALLOWED {
        let unless = libc::sock_filter { jt: 0, jf: 1, ..skip_one_if(call as u32) };
        program.extend([unless, allow]);
    }
    program.push(end);
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies the program during the call.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// On this architecture the needed system calls are not known, so there is no filter.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn filter_system_calls() -> io::Result<()> {
    Ok(())
}
