//! Drivers of the pure cores: sockets, clocks, threads and disks.
//!
//! One thread per role. A thread sleeps in `ppoll` with nanosecond timeouts, and no request passes
//! through an async runtime:
//!
//! ```text
//!            ┌──────────────── wait (ppoll) ◀───────────────┐
//!            ▼                                               │
//!  recvmmsg ─▶ handle_datagram … ─▶ handle_deadline ─▶ handle_batch_end
//!                                                            │
//!            ┌── sendmmsg ◀─ poll_transmit ◀─ storage ◀──────┘
//!            └──────────────▶ wait
//! ```
//!
//! - [`UdpEndpoint`]: sends and receives batches of datagrams. Datagrams that the kernel refuses
//!   are counted as lost; the protocols retry.
//! - [`Uplink`]: a client's endpoint, which may run a switch's pipeline itself.
//! - [`FramedStream`]: length-prefixed frames over non-blocking TCP, bounded.
//! - [`now`], [`Waker`], [`Stop`]: clocks, waking a role from another thread, stopping all roles.

pub mod admin;
pub mod chunks;
mod client;
pub mod clock;
pub mod control_plane;
mod inbox;
pub mod inquiry;
mod memory;
pub mod metadata;
mod new_file;
pub mod node;
mod stop;
mod stream;
mod switch;
mod sys;
mod term_file;
mod udp;
mod uplink;
mod wait;
mod wake;

pub use client::{new_client_id, receive_into, renew_client_id, start_client, start_client_as};
pub use clock::{in_words, now};
pub use memory::{keep_large_buffers_apart, release_free_memory};
pub use new_file::{NewFile, remove_unfinished_on_signals, write_whole};
pub use stop::Stop;
pub use stream::{FrameLimits, FramedStream, StreamError, accept, dial, listen};
pub use switch::{
    AgentLink, ClientTracer, Edges, OpenFlowSwitch, OtherVersion, SwitchError, SwitchInquirer,
    SwitchObservation, TrunkLinks, UserSpaceSwitch, WatchedPort, agent as switch_agent, run_agent,
    run_openflow,
};
pub use sys::Left;
pub use term_file::{TermFile, TermFileError};
pub use udp::{DatagramCounters, Message, UdpEndpoint};
pub use uplink::Uplink;
pub use wait::{BusyPoll, PollFd, interest, is_ready, readable, wait};
pub use wake::Waker;

/// A number from the operating system's random source.
pub fn random() -> std::io::Result<u64> {
    getrandom::u64().map_err(std::io::Error::from)
}

/// A random 128-bit id.
pub fn random_id() -> std::io::Result<u128> {
    Ok(u128::from(random()?) << 64 | u128::from(random()?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn random_numbers_differ() {
        let numbers: std::collections::BTreeSet<_> = (0..100).map(|_| super::random().unwrap()).collect();
        assert_eq!(numbers.len(), 100);
    }
}
