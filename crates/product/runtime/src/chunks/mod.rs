//! Runs targets and initiators of negotiated storage (`nicekv_objects`) on sockets, disks and
//! threads.
//!
//! ```text
//!   target      socket ─▶ core ─▶ socket                        initiator   callers ─▶ core ─▶ socket
//!                          │▲                                                ▲           │
//!                disk thread: write, verify, fsync, read                     └── results ┘
//! ```
//!
//! A target also sends to groups: it checks the replicas of its chunks, and copies chunks that have
//! too few.
//!
//! A [`View`] queries the cluster's group map and garbage collection round at intervals, and when a
//! peer names a newer version.

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
use nicekv_proto::NodeId;
use nicekv_proto::chunk::ChunkId;
use nicekv_proto::placement::GroupRing;
use std::io;
use std::net::SocketAddrV4;

/// A chunk on the disk: its id, its length in bytes, and the targets that should hold it.
type HeldChunk = (ChunkId, u32, Vec<NodeId>);

/// Most batches that are received before their results are processed.
const RECEIVE_ROUNDS_MAX: usize = 8;

/// Window parameters for hosts whose clocks are not synchronised and whose schedulers are sometimes
/// late. All targets and initiators of a cluster must use the same parameters.
pub fn windows(delivery: Delivery, link_bits_per_second: u64) -> Config {
    let base = match delivery {
        Delivery::Multicast => Config::MULTICAST,
        Delivery::Unicast => Config::UNICAST,
    };
    Config {
        // As in the paper, a tenth of the link is for control messages.
        data_bits_per_second: link_bits_per_second / 10 * 9,
        control_bits_per_second: link_bits_per_second / 10,
        frame_bytes: nicekv_proto::limits::DATAGRAM_BYTES_MAX as u32,
        trip_ns: 20_000,
        margin_ns: 2_000_000,
        horizon_ns: 2_000_000_000,
        // 5 ms for the answers; in addition, the request and the accept may each queue behind
        // frames.
        tentative_ns: 5_000_000 + 2 * behind_frames_ns(link_bits_per_second),
        grace_ns: 100_000_000,
        is_last_tried: true,
        alike_ns: 500_000,
        ..base
    }
}

/// The address to which a datagram for this destination is sent.
fn address_of(ring: &GroupRing, to: Destination) -> SocketAddrV4 {
    match to {
        Destination::Group { group, mask } => ring.address(group, mask),
        Destination::Host(address) => address,
    }
}

/// Timeouts of initiators on links of this rate.
pub fn timing(link_bits_per_second: u64) -> Timing {
    let answers_ns = Timing::DEFAULT.answers_ns + behind_frames_ns(link_bits_per_second);
    Timing { answers_ns, ..Timing::DEFAULT }
}

/// Time that a control message may queue behind frames that leave or reach its host at the same
/// time.
fn behind_frames_ns(link_bits_per_second: u64) -> u64 {
    const FRAMES: u64 = 64;
    let bits = FRAMES * 8 * nicekv_proto::limits::DATAGRAM_BYTES_MAX as u64;
    bits * 1_000_000_000 / link_bits_per_second.max(1)
}

/// Waits for datagrams, a wake-up or the deadline. Passes each received datagram to `handle` with
/// its receive time.
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
