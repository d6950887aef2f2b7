//! Types that many parts of a node use.

use core::net::SocketAddrV4;
use foldhash::fast::FixedState;

/// A hash table whose order depends on the configured seed only.
pub(crate) type Map<K, V> = hashbrown::HashMap<K, V, FixedState>;

/// The other end of a copying stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPeer {
    /// A connection that this node opens to a source, by its address.
    Dialed(SocketAddrV4),
    /// A connection that was accepted, by its number.
    Accepted(u64),
}
