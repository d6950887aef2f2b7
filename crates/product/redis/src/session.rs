//! The state of one connection that commands know and change.

use crate::acl::Login;
use crate::exec::Caller;
use crate::reply_mode::ReplyMode;
use crate::resp::Protocol;
use crate::subscription::Subscriptions;
use crate::transaction::Multi;
use alloc::vec::Vec;
use nicekv_proto::KeyspaceId;

/// See the module.
#[derive(Debug, Default)]
pub struct Session {
    /// CLIENT ID.
    pub id: u64,
    /// SELECT: the keyspace of all its keys.
    pub keyspace: KeyspaceId,
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// MULTI, WATCH.
    pub multi: Multi,
    pub protocol: Protocol,
    /// SUBSCRIBE, PSUBSCRIBE.
    pub subscriptions: Subscriptions,
    pub login: Login,
    /// CLIENT REPLY.
    pub reply_mode: ReplyMode,
    /// MONITOR.
    pub is_monitor: bool,
}

impl Session {
    /// The connection that a transaction or a script runs for.
    pub(crate) fn caller(&self, unix_ms: u64) -> Caller {
        let user = self.login.user().cloned();
        Caller { keyspace: self.keyspace, protocol: self.protocol, unix_ms, user }
    }

    /// Whether it may run only what subscribers may: by RESP2, replies and messages would mix.
    pub fn is_subscriber_only(&self) -> bool {
        self.protocol == Protocol::Resp2 && !self.subscriptions.is_empty()
    }
}
