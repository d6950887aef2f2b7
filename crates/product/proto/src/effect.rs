//! What a decision does to the key that it is about.

use crate::declare::code;

code! {
    /// What a decision does to its key. Every effect is a blind write: it does not depend on what the replica holds, so a replica that
    /// is still copying the partition may apply it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Effect {
        /// Nothing: the condition did not hold, or the op was refused.
        None = 0,
        /// Stores the value of the op's prepare, with the decision's expiry time.
        StorePrepared = 1,
        /// Stores the decision's value and expiry time.
        Store = 2,
        /// Removes the key.
        Remove = 3,
        /// What the steps of a transaction do, which are the decision's value ([`Taken`](crate::transaction::Taken)): none of them this.
        Transaction = 4,
    }
}
