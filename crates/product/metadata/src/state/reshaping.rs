//! Requested splits and merges (R17), and their progress.
//!
//! ```text
//!   requested ─▶ forming: parents go on, children are being formed ─▶ sealed: open ops are decided ─▶ the children exist
//!      ▲                    │                                                   │
//!      └── broken off ──────┴───────────────────────────────────────────────────┘
//! ```
//!
//! A request names its parents. Its children have ids only while they are being formed, and get new
//! ones in each attempt, so an attempt that is broken off leaves nothing behind.

use alloc::vec;
use alloc::vec::Vec;

use nicekv_proto::{MatchRange, PartitionId};
use serde::{Deserialize, Serialize};

use super::encoding::{match_range, partition_id, partition_ids};

/// Upper bound of requests, including those that are being carried out.
pub(crate) const RESHAPINGS_MAX: usize = 64;
/// Upper bound of requests that are being carried out.
pub(crate) const FORMING_MAX: usize = 4;
/// Upper bound of split or merged partitions whose data some node may still hold.
pub(crate) const RESHAPED_MAX: usize = 1024;

/// A request: one partition to split, or two adjacent ones to merge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reshaping {
    /// One or two parents, ascending by range.
    #[serde(with = "partition_ids")]
    pub(crate) parents: Vec<PartitionId>,
    /// The first match value of the second child; `None` for a merge.
    pub(crate) at: Option<u128>,
}

/// The children that the members of a parent are forming.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Forming {
    pub(crate) children: Vec<Child>,
    /// Whether the parent is sealed, so that no new op of a client begins.
    pub(crate) sealed: bool,
}

/// A partition being formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Child {
    #[serde(with = "partition_id")]
    pub(crate) partition: PartitionId,
    #[serde(with = "match_range")]
    pub(crate) range: MatchRange,
}

/// A parent with its last decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parent {
    #[serde(with = "partition_id")]
    pub(crate) partition: PartitionId,
    pub(crate) index: u64,
}

/// Whether `high` begins directly behind `low`.
pub(crate) fn is_followed(low: MatchRange, high: MatchRange) -> bool {
    low.last().checked_add(1) == Some(high.first())
}

impl Reshaping {
    /// The ranges of the children, given the ranges of the parents; `None` if the request is
    /// invalid.
    pub(crate) fn ranges(&self, parents: &[MatchRange]) -> Option<Vec<MatchRange>> {
        match (parents, self.at) {
            (&[whole], Some(at)) => {
                let is_inside = whole.first() < at && at <= whole.last();
                let low = MatchRange::new(whole.first(), at.checked_sub(1)?).ok()?;
                let high = MatchRange::new(at, whole.last()).ok()?;
                is_inside.then(|| vec![low, high])
            }
            (&[low, high], None) if is_followed(low, high) => {
                Some(vec![MatchRange::new(low.first(), high.last()).ok()?])
            }
            _ => None,
        }
    }
}
