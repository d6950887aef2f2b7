//! What a node that coordinates (`coordination`) remembers.

use alloc::vec::Vec;
use nicekv_proto::placement::DirectoryFetch;

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Coordination {
    pub(crate) fetch: DirectoryFetch,
    /// Heartbeats since it was asked for.
    pub(crate) waited: u32,
    /// What was passed on was refused.
    pub(crate) is_in_doubt: bool,
    /// What is passed on; kept so that nothing is allocated.
    pub(crate) request: Vec<u8>,
}
