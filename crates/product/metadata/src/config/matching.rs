//! Keyspaces that the switches of a cluster cannot serve.

use alloc::string::String;

use nicekv_proto::KeyOrder;
use nicekv_proto::placement::{KeyspaceSpec, LoadBalancing, Protocol};
use nicekv_switch::Matching;
use thiserror::Error;

/// A setting of a keyspace that an OpenFlow switch cannot serve.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("keyspace {keyspace:?} has {setting}, but {reason}; use {instead}")]
pub struct Unmatched {
    keyspace: String,
    setting: &'static str,
    reason: &'static str,
    instead: &'static str,
}

/// Checks that switches can serve the keyspace.
pub(crate) fn check(matching: Matching, spec: &KeyspaceSpec) -> Result<(), Unmatched> {
    if matching == Matching::Messages {
        return Ok(());
    }
    let refused =
        |setting, reason, instead| Err(Unmatched { keyspace: spec.name.clone(), setting, reason, instead });
    if spec.protocol == Protocol::Chain {
        return refused(
            "replication=chain",
            "an OpenFlow switch cannot write the chain into requests",
            "replication=multicast or replication=quorum",
        );
    }
    if spec.order == KeyOrder::Range {
        return refused(
            "partitioning=range",
            "an OpenFlow switch cannot match ranges of keys",
            "partitioning=hash",
        );
    }
    if spec.balancing == LoadBalancing::Hot {
        return refused(
            "balancing=hot",
            "an OpenFlow switch cannot match single keys",
            "balancing=migrate or balancing=none",
        );
    }
    Ok(())
}
