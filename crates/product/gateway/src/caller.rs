//! For whom something is executed that takes longer than its planning.

use crate::reply::Protocol;
use crate::security::User;
use nicekv_proto::KeyspaceId;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) keyspace: KeyspaceId,
    /// In which it is replied to.
    pub(crate) protocol: Protocol,
    /// When it was called.
    pub(crate) unix_ms: u64,
    pub(crate) user: Option<Arc<User>>,
}
