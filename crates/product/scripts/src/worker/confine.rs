//! What a worker gives up before it runs the first script: files, other processes, privileges, memory beyond a bound.
//!
//! A script that finds a way out of its interpreter is then in a process that can compute, and speak to its node by the socket that it has, and nothing else.

#![allow(unsafe_code, reason = "prctl(PR_SET_SECCOMP) and setitimer(2) have no safe wrapper")]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::time::Duration;

/// Memory beside what is mapped at the start: a script's 16 MiB, several copies of the states of its keys, replies.
const MEMORY_BYTES_MAX: u64 = 256 << 20;

/// Of 1,000: how willingly the kernel ends it where memory runs out.
const OOM_SCORE: &str = "500";

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// System calls that a worker needs: messages, memory, its clock and timer, and its end.
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

/// From here on this process can do nothing but run scripts. Not undone.
pub(super) fn confine() -> io::Result<()> {
    // Where memory runs out, a script is what to do without. Not everywhere may this be written.
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

/// The process ends when it has taken this much processor time from here on; zero: it does not.
pub(super) fn set_cpu_bound(bound: Duration) -> io::Result<()> {
    let value =
        libc::timeval { tv_sec: bound.as_secs() as libc::time_t, tv_usec: bound.subsec_micros().into() };
    let interval = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let timer = libc::itimerval { it_interval: interval, it_value: value };
    // SAFETY: it reads one structure, and writes none.
    let result = unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The signal by which a process ends at its bound.
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
    // `seccomp_data` begins with the call's number, and the architecture that it is of.
    let mut program = vec![load(4), skip_one_if(ARCHITECTURE), end, load(0)];
    for call in ALLOWED {
        let unless = libc::sock_filter { jt: 0, jf: 1, ..skip_one_if(call as u32) };
        program.extend([unless, allow]);
    }
    program.push(end);
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies the program, which lives until then.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Nobody has written down which calls are needed here.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn filter_system_calls() -> io::Result<()> {
    Ok(())
}
