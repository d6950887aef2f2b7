//! What the switches of a cluster match and write.

/// How deep switches look into a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Matching {
    /// Into the messages of this system, too, and they write their headers: eBPF, and the model.
    #[default]
    Messages,
    /// Only into Ethernet, IP and UDP headers: OpenFlow (NICE §5).
    ///
    /// Such a switch may also forward by old tables for a moment after it has acknowledged new ones:
    /// Open vSwitch replies to a BARRIER before it has renewed its cache of decisions.
    Headers,
}
