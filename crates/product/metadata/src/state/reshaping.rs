//! Partitions that are split or merged (R17): what is asked for, and how far it is.
//!
//! ```text
//!   a wish ─▶ forming: the parents go on, the children are in the making ─▶ sealed: what is open is decided ─▶ the children are there
//!      ▲                    │                                                   │
//!      └── broken off ──────┴───────────────────────────────────────────────────┘
//! ```
//!
//! A wish names parents; children have ids only while they are formed, and other ones each time. So whatever is broken off was never anything.

use alloc::vec;
use alloc::vec::Vec;

use nicekv_proto::{MatchRange, PartitionId};
use serde::{Deserialize, Serialize};

use super::encoding::{match_range, partition_id, partition_ids};

/// Most wishes, those that are carried out included.
pub(crate) const RESHAPINGS_MAX: usize = 64;
/// Most of them that are carried out at once.
pub(crate) const FORMING_MAX: usize = 4;
/// Most partitions that were split or merged and that somebody may still hold.
pub(crate) const RESHAPED_MAX: usize = 1024;

/// A wish: one partition that is to be split, or two adjacent ones that are to be merged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reshaping {
    /// In the order of their ranges.
    #[serde(with = "partition_ids")]
    pub(crate) parents: Vec<PartitionId>,
    /// The match value with which the second child begins; none: they are merged.
    pub(crate) at: Option<u128>,
}

/// What the members of a parent form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Forming {
    pub(crate) children: Vec<Child>,
    /// No op of a client begins any more.
    pub(crate) sealed: bool,
}

/// A partition that is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Child {
    #[serde(with = "partition_id")]
    pub(crate) partition: PartitionId,
    #[serde(with = "match_range")]
    pub(crate) range: MatchRange,
}

/// A partition that was, up to its last decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parent {
    #[serde(with = "partition_id")]
    pub(crate) partition: PartitionId,
    pub(crate) index: u64,
}

/// Whether one range ends where the other one begins.
pub(crate) fn is_followed(low: MatchRange, high: MatchRange) -> bool {
    low.last().checked_add(1) == Some(high.first())
}

impl Reshaping {
    /// What the children are to own of what the parents own; `None` if that makes no sense.
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
