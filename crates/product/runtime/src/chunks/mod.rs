//! Negotiated storage on real sockets and disks: the threads of a target, and of an initiator (`nicekv_objects`).
//!
//! ```text
//!   target      socket ─▶ core ─▶ socket                        initiator   callers ─▶ core ─▶ socket
//!                          │▲                                                ▲           │
//!                disk thread: write, verify, force, read                     └── what has become of it
//! ```
//!
//! A target sends to groups, too: it looks after what it holds, and puts again what too few hold.
//!
//! What both must know of the cluster, its map of groups and its round, a [`View`] finds out now and then, and when they say that there is a newer one.

mod collector;
mod gather;
mod initiator;
mod memory;
mod segments;
mod store;
mod target;
mod view;

pub use collector::ListNames;
pub use initiator::{ChunkClient, ChunkClientError, Pending, start_chunk_client};
pub use store::{ChunkDisk, ChunkStore, ChunkStoreError, Told};
pub use target::{ChunkTarget, TargetError, TargetObservation, TargetParts, TargetWatch};
pub use view::{Known, View, ring_of};

use crate::{Left, Message, UdpEndpoint, Waker, is_ready, now, readable, wait};
use nicekv_objects::reservation::{Config, Delivery};
use nicekv_objects::{Destination, Timing};
use nicekv_proto::placement::GroupRing;
use std::io;
use std::net::SocketAddrV4;

/// Batches received before what they have led to is done.
const RECEIVE_ROUNDS_MAX: usize = 8;

/// Parameters of windows on a network of hosts, whose clocks nobody compares and whose schedulers are late now and then: all targets and initiators of a cluster have the same.
pub fn windows(delivery: Delivery, link_bits_per_second: u64) -> Config {
    let base = match delivery {
        Delivery::Multicast => Config::MULTICAST,
        Delivery::Unicast => Config::UNICAST,
    };
    Config {
        // A tenth is for control messages, as in the paper.
        data_bits_per_second: link_bits_per_second / 10 * 9,
        control_bits_per_second: link_bits_per_second / 10,
        frame_bytes: nicekv_proto::limits::DATAGRAM_BYTES_MAX as u32,
        trip_ns: 20_000,
        margin_ns: 2_000_000,
        horizon_ns: 2_000_000_000,
        // Request and accept may each wait behind frames, besides the time that answers have.
        tentative_ns: 5_000_000 + 2 * behind_frames_ns(link_bits_per_second),
        grace_ns: 100_000_000,
        is_last_tried: true,
        alike_ns: 500_000,
        ..base
    }
}

/// Where a datagram goes.
fn address_of(ring: &GroupRing, to: Destination) -> SocketAddrV4 {
    match to {
        Destination::Group { group, mask } => ring.address(group, mask),
        Destination::Host(address) => address,
    }
}

/// How long initiators wait on such links.
pub fn timing(link_bits_per_second: u64) -> Timing {
    let answers_ns = Timing::DEFAULT.answers_ns + behind_frames_ns(link_bits_per_second);
    Timing { answers_ns, ..Timing::DEFAULT }
}

/// What a control message waits for behind frames that leave its host, or come to it, together.
fn behind_frames_ns(link_bits_per_second: u64) -> u64 {
    const FRAMES: u64 = 64;
    let bits = FRAMES * 8 * nicekv_proto::limits::DATAGRAM_BYTES_MAX as u64;
    bits * 1_000_000_000 / link_bits_per_second.max(1)
}

/// Waits until something has come, somebody wakes the thread, or it is time; hands over what has come, and when.
fn receive(
    endpoint: &mut UdpEndpoint,
    waker: &Waker,
    deadline_ns: u64,
    mut handle: impl FnMut(u64, &Message<'_>),
) -> io::Result<()> {
    let mut descriptors = [readable(endpoint), readable(waker)];
    wait(&mut descriptors, (deadline_ns != u64::MAX).then_some(deadline_ns))?;
    if !is_ready(&descriptors[0]) {
        return Ok(());
    }
    for _ in 0..RECEIVE_ROUNDS_MAX {
        let now_ns = now().boot_ns;
        if endpoint.receive(|message| handle(now_ns, &message))? != Left::More {
            break;
        }
    }
    Ok(())
}
