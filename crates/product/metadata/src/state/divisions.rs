//! Divisions of gets among replicas (NICE §4.5), as they are persisted.

use alloc::vec::Vec;

use nicekv_proto::NodeId;
use nicekv_switch::Prefix;
use serde::{Deserialize, Serialize};

use super::encoding::{node_id, node_ids};

/// Sources whose gets one member answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Division {
    pub(crate) source: Prefix,
    #[serde(with = "node_id")]
    pub(crate) node: NodeId,
}

/// The divisions of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Divisions {
    /// The members among which gets are divided, the primary first. Empty: gets have not been
    /// divided yet.
    #[serde(with = "node_ids")]
    pub(crate) among: Vec<NodeId>,
    /// The divisions. The primary serves all other sources.
    pub(crate) list: Vec<Division>,
}

impl Divisions {
    /// Whether the invariants hold.
    pub(crate) fn are_sound(&self) -> bool {
        let is_named_once = |(index, division): (usize, &Division)| {
            self.list[..index].iter().all(|before| before.source != division.source)
        };
        self.list.len() <= self.among.len()
            && self.list.iter().all(|division| division.source.is_canonical())
            && self.list.iter().enumerate().all(is_named_once)
    }

    /// The member that serves an address.
    pub(crate) fn holder(&self, primary: NodeId, address: u32) -> NodeId {
        let covers = |division: &&Division| division.source.contains(address.to_be_bytes());
        let longest = self.list.iter().filter(covers).max_by_key(|division| division.source.length);
        longest.map_or(primary, |division| division.node)
    }
}
