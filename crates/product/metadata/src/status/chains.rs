//! What the members of a chain are in it.

use super::PartitionStatus;

impl PartitionStatus {
    /// Of a chain: what a member is in it.
    pub fn chain_role(&self, node: u16) -> Option<&'static str> {
        let place = |node| self.members.iter().position(|member| member.node == node);
        let tail = self.tail?;
        Some(match (node == self.primary, node == tail) {
            (true, true) => "head and tail",
            (true, false) => "head",
            (false, true) => "tail",
            (false, false) if place(node) > place(tail) => "behind the tail",
            (false, false) => "middle",
        })
    }

    /// Node that holds all that was acknowledged, and nothing that was not.
    pub fn told_by(&self) -> u16 {
        self.tail.unwrap_or(self.primary)
    }
}
