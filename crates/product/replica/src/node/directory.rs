//! State of a node that coordinates (`coordination`).

use alloc::vec::Vec;
use nicekv_proto::placement::DirectoryFetch;

#[derive(Clone, Default)]
pub(crate) struct Coordination {
    pub(crate) fetch: DirectoryFetch,
    /// Number of heartbeats since the last fetch.
    pub(crate) waited: u32,
    /// Whether a node has refused a forwarded request, so that the directory may be outdated.
    pub(crate) is_in_doubt: bool,
    /// Buffer for a request that is being forwarded, kept to avoid allocations.
    pub(crate) request: Vec<u8>,
}
