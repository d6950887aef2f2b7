//! Loading the programs. The switch drops vring traffic until this is done, so it must not fail or
//! take long.

#![allow(unsafe_code, reason = "signals to one thread")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nicekv_switch_fixtures::PORTS;

use super::namespaces::{Network, as_root};
use super::{Lab, OBJECT, at_both, load};
use crate::Hook;
use crate::attach::{EGRESS, TC, XDP};

/// Upper bound of the instructions that the kernel's verifier processes. The verifier gives up at a
/// million.
const VERIFIED_MAX: u32 = 120_000;

#[test]
fn program_is_loaded_only_for_ports_that_need_it() {
    at_both("program_is_loaded_only_for_ports_that_need_it", |hook| {
        let lab = Lab::new(OBJECT, hook);
        for name in [XDP, EGRESS, TC] {
            let program = lab.xdp.programs.program(name).unwrap();
            // A port at XDP also needs the tc program, which splits scans.
            assert_eq!(program.fd().is_ok(), name == TC || hook == Hook::Xdp, "{name} for {hook}");
            let Ok(info) = program.info() else { continue };
            let verified = info.verified_instruction_count().expect("Linux 5.16");
            assert!(verified < VERIFIED_MAX, "{name}: the verifier processed {verified} instructions");
        }
    });
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn signals_do_not_prevent_loading_a_program() {
    const SENT: usize = 90;
    as_root("signals_do_not_prevent_loading_a_program", || {
        // SAFETY: the handler only increments an atomic number.
        unsafe { libc::signal(libc::SIGUSR1, count_signal as *const () as libc::sighandler_t) };
        let network = Network::enter(PORTS.end, |_| Hook::Tc);
        // SAFETY: the function has no arguments and cannot fail.
        let loader = unsafe { libc::pthread_self() };
        thread::scope(|scope| {
            let sender = scope.spawn(move || {
                for _ in 0..SENT {
                    thread::sleep(Duration::from_millis(2));
                    // SAFETY: the loader waits for this thread before it ends.
                    unsafe { libc::pthread_kill(loader, libc::SIGUSR1) };
                }
            });
            while !sender.is_finished() {
                drop(load(OBJECT, &network));
            }
        });
        assert!(SIGNALS.load(Ordering::Relaxed) > 0);
    });
}
