//! The roles of members in a chain.

use super::PartitionStatus;

impl PartitionStatus {
    /// The role of a member in its chain.
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

    /// The node that has exactly the acknowledged data: in a chain the tail, otherwise the primary.
    pub fn told_by(&self) -> u16 {
        self.tail.unwrap_or(self.primary)
    }
}
