//! Clients of a lab that record what they see, for tests of the whole system: the native client,
//! and a Redis client of a gateway.
//!
//! Both make one call at a time and record it for the checker of `nicekv-history`, on the boot-time
//! clock, which all processes of the machine share. A call whose outcome is unknown has no answer.

mod native;
mod resp;

use std::time::Duration;

use nicekv_client::Keyspace;
use nicekv_history::{Action, Call};
use nicekv_proto::KeyspaceId;

use crate::error::{LabError, Result};
use crate::scope::Scope;
use crate::topology::Host;

pub(crate) use native::{Covered, NativeClient};
pub(crate) use resp::RespClient;

/// Longer than a gateway's own timeout of 5 s.
const RESP_TIMEOUT: Duration = Duration::from_secs(10);

/// A client of either kind.
pub(crate) enum Client {
    Native(Box<NativeClient>),
    /// A client of a gateway. Its answers have no versions.
    Resp(RespClient),
}

impl Client {
    /// A native client on a host, for these keyspaces.
    pub(crate) fn native(scope: &Scope, host: Host, keyspaces: Vec<Keyspace>) -> Result<Self> {
        let bound = scope.namespace(host).inside(|| NativeClient::bind(keyspaces))?;
        bound
            .map(|client| Self::Native(Box::new(client)))
            .map_err(LabError::system(format!("bind a client on {host}")))
    }

    /// A client of the gateway on a host, with a unique number. It connects when it is first used.
    pub(crate) fn resp(scope: &Scope, host: Host, number: u64) -> Self {
        Self::Resp(Self::redis(scope, host, number))
    }

    /// The same, for any Redis command.
    pub(crate) fn redis(scope: &Scope, host: Host, number: u64) -> RespClient {
        RespClient::new(scope.namespace(host), number, RESP_TIMEOUT)
    }

    /// Whether its answers have versions.
    pub(crate) fn sees_versions(&self) -> bool {
        matches!(self, Self::Native(_))
    }

    /// Lists the keys after `after` and up to `last`. Returns the pieces that were read before an
    /// error, if there is one. Only native clients can scan.
    pub(crate) fn scan(&mut self, keyspace: KeyspaceId, after: &[u8], last: &[u8]) -> Result<Vec<Covered>> {
        match self {
            Self::Native(client) => {
                let failed = LabError::system("use a client's socket".to_owned());
                client.scan(keyspace, after, last).map_err(failed)
            }
            Self::Resp(_) => Ok(Vec::new()),
        }
    }

    /// Makes a call and waits until it ends. The op id in `action` is replaced by the call's own.
    pub(crate) fn call(&mut self, keyspace: KeyspaceId, key: &[u8], action: Action) -> Result<Call> {
        match self {
            Self::Native(client) => {
                let failed = LabError::system("use a client's socket".to_owned());
                client.call(keyspace, key, action).map_err(failed)
            }
            Self::Resp(client) => client.call(keyspace, key, action),
        }
    }
}
