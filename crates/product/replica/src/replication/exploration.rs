//! For tests that visit every state: what of a replica distinguishes its future, and what must always hold.

use crate::Explore;
use crate::replication::hosted::Hosted;
use crate::replication::multicast::Partition;
use core::hash::Hasher;

impl Explore for Hosted {
    fn fingerprint(&self, state: &mut impl Hasher) {
        self.explored().fingerprint(state);
    }

    fn fingerprint_wait(&self, record: u64, state: &mut impl Hasher) {
        self.explored().fingerprint_wait(record, state);
    }

    fn check_invariants(&self) -> Result<(), &'static str> {
        match self {
            Self::Multicast(partition) => partition.check_invariants(),
            Self::Quorum(_) => Ok(()),
        }
    }
}

impl Hosted {
    fn explored(&self) -> &Partition {
        match self {
            Self::Multicast(partition) => partition,
            Self::Quorum(_) => unreachable!("worlds that are visited as a whole have no quorum keyspace"),
        }
    }
}
