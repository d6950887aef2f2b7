//! Types that several parts of a node use.

use core::net::SocketAddrV4;
use foldhash::fast::FixedState;

/// A hash table whose iteration order depends only on the configured seed.
pub(crate) type Map<K, V> = hashbrown::HashMap<K, V, FixedState>;

/// The other end of a copying stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPeer {
    /// A connection that this node has opened to the member at this address.
    Dialed(SocketAddrV4),
    /// A connection that this node has accepted, by its number.
    Accepted(u64),
}
