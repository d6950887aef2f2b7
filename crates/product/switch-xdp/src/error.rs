//! Errors of loading the switch, with advice.

use std::error::Error;
use std::io;

use nicekv_switch::{BackendError, PORTS_MAX, TableError};
use thiserror::Error;

/// Why loading the switch failed ([`KernelSwitch::load`](crate::KernelSwitch::load)).
#[derive(Debug, Error)]
pub enum XdpError {
    /// The rings contradict each other.
    #[error(transparent)]
    Vrings(#[from] TableError),
    /// More than [`PORTS_MAX`] ports.
    #[error("{ports} switch ports, the limit is {PORTS_MAX}")]
    TooManyPorts {
        /// Number of ports given.
        ports: usize,
    },
    /// Two ports have the same index or the same interface.
    #[error(
        "port {index} (interface index {ifindex}) is given twice: give each port its own index and interface"
    )]
    DuplicatePort {
        /// The index of the second port.
        index: u16,
        /// The interface of the second port.
        ifindex: u32,
    },
    /// A port is at XDP in a switch that also has ports with [`Hook::None`](crate::Hook).
    #[error("port {index}: a switch with ports of hook none works at tc, not at XDP")]
    SharedAtXdp {
        /// The index of the port at XDP.
        index: u16,
    },
    /// The process lacks a permission.
    #[error(
        "{step}: not permitted. The switch in the kernel needs root, or CAP_BPF and CAP_NET_ADMIN: start it with sudo"
    )]
    Denied {
        /// The step that failed.
        step: String,
    },
    /// The kernel or an interface lacks a feature.
    #[error("{step}: {reason}. {advice}")]
    Failed {
        /// The step that failed.
        step: String,
        /// The kernel's error.
        reason: String,
        /// Advice for the operator.
        advice: &'static str,
    },
}

/// Advice when programs or maps cannot be created.
pub(crate) const KERNEL_ADVICE: &str = "The switch in the kernel needs Linux 5.15 or newer with CONFIG_BPF_SYSCALL; use the user-space switch otherwise";
/// Advice when a port cannot be attached.
pub(crate) const PORT_ADVICE: &str = "Check that the interface exists in this network namespace, has no other \
     XDP program (ip link show), and that its driver has native XDP or, for tc, that this is Linux 6.6 or newer";

impl XdpError {
    pub(crate) fn new(step: impl Into<String>, error: &(dyn Error + 'static), advice: &'static str) -> Self {
        let step = step.into();
        if os_error(error).is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            return Self::Denied { step };
        }
        Self::Failed { step, reason: chain(error), advice }
    }
}

pub(crate) fn platform(step: &str, error: &(dyn Error + 'static)) -> BackendError {
    BackendError::Platform(format!("{step}: {}", chain(error)))
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let current = next?;
        next = current.source();
        Some(current)
    })
}

fn os_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    causes(error).find_map(|error| error.downcast_ref::<io::Error>())
}

/// The messages of an error and its causes, without repetitions.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut messages: Vec<String> = Vec::new();
    for message in causes(error).map(ToString::to_string) {
        if !messages.iter().any(|earlier| earlier.contains(&message)) {
            messages.push(message);
        }
    }
    messages.join(": ")
}
