//! Effect of a decision on its key.

use crate::declare::code;

code! {
    /// Effect of a decision on its key. Every effect is a blind write: it does not depend on the
    /// replica's state, so a replica that is still copying the partition can apply it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Effect {
        /// None: the condition did not hold, or the op was refused.
        None = 0,
        /// Stores the value of the op's prepare, with the decision's expiry time.
        StorePrepared = 1,
        /// Stores the decision's value and expiry time.
        Store = 2,
        /// Removes the key.
        Remove = 3,
        /// Effects of a transaction's steps, which the decision's value lists
        /// ([`Taken`](crate::transaction::Taken)); never the effect of a step.
        Transaction = 4,
    }
}
