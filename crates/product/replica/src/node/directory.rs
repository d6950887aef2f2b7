//! State of a node that coordinates (`coordination`).

use alloc::vec::Vec;
use nicekv_proto::placement::DirectoryFetch;

#[derive(Clone, Default)]
pub(crate) struct Coordination {
    pub(crate) fetch: DirectoryFetch,
    /// Heartbeats since the last fetch.
    pub(crate) waited: u32,
    /// A forwarded request was refused.
    pub(crate) is_in_doubt: bool,
    /// Buffer for a forwarded request, kept to save the allocation.
    pub(crate) request: Vec<u8>,
}
