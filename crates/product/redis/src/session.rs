//! The state of a connection that commands use and change.

use crate::acl::Login;
use crate::exec::Caller;
use crate::reply_mode::ReplyMode;
use crate::resp::Protocol;
use crate::subscription::Subscriptions;
use crate::transaction::Multi;
use alloc::vec::Vec;
use nicekv_proto::KeyspaceId;

#[derive(Debug, Default)]
pub struct Session {
    /// As in CLIENT ID.
    pub id: u64,
    /// The keyspace that SELECT has chosen.
    pub keyspace: KeyspaceId,
    /// Set by CLIENT SETNAME.
    pub name: Vec<u8>,
    /// The state of MULTI and WATCH.
    pub multi: Multi,
    pub protocol: Protocol,
    /// Set by SUBSCRIBE and PSUBSCRIBE.
    pub subscriptions: Subscriptions,
    pub login: Login,
    /// Set by CLIENT REPLY.
    pub reply_mode: ReplyMode,
    /// Set by MONITOR.
    pub is_monitor: bool,
}

impl Session {
    /// The caller of a transaction or script that this connection runs.
    pub(crate) fn caller(&self, unix_ms: u64) -> Caller {
        let user = self.login.user().cloned();
        Caller { keyspace: self.keyspace, protocol: self.protocol, unix_ms, user }
    }

    /// Whether only commands for subscribers are allowed: with RESP2, other replies could not be
    /// told from messages.
    pub fn is_subscriber_only(&self) -> bool {
        self.protocol == Protocol::Resp2 && !self.subscriptions.is_empty()
    }
}
