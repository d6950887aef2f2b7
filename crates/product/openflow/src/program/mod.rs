//! Programs: the flows and groups of a switch that do what the tables of [`nicekv_switch`] say.
//!
//! ```text
//!   0 generation   the generation that all later tables match, without bundles
//!   1 source_mac   Ethernet source of a server at another port ──────────────────────▶ dropped
//!   2 source_ip    IP or ARP source of a server at another port ─────────────────────▶ dropped
//!   3 destination  for a vring: UDP only, no fragment, no VLAN tag, no forged server ─▶ dropped
//!       │ for a vring                           │ other traffic
//!   4 meter        a port's rate of requests    │
//!   5 vring        longest prefix of the vnode ─┼─ multicast ──▶ group: a rewritten copy to each member
//!       │ unicast: partition, default host      │  no entry ───▶ dropped
//!   6 division     longest prefix of the source │
//!   7 host         rewritten, to its port       │
//!   8 station                                   └▶ the port of its destination, or all open ports
//! ```
//!
//! Invariants:
//! - A datagram for a vring never reaches table `station` (R12), whatever is installed.
//! - Equal tables give equal programs, so the difference of two programs is what has to be sent.
//! - A group is identified by its buckets, and never changed: another set of members is another group.
//!
//! A switch of this kind cannot read what is behind the UDP header. What needs that is refused with
//! [`Unsupported`]; and which opcodes a sender may use is checked by nodes only.

mod changes;
mod compile;
mod layout;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use nicekv_switch::{Counter, Table};
use thiserror::Error;

pub use changes::Changes;
pub use compile::{Fabric, compile};
pub use layout::Generation;

use crate::wire::{Action, Instruction, Match};

/// Identifies a flow within a switch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    pub table: u8,
    pub priority: u16,
    pub matches: Match,
}

/// The effect of a flow, and the meaning of its count of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    pub instructions: Vec<Instruction>,
    pub meaning: Meaning,
}

/// The packets that a flow counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// None that anyone asks for.
    Uncounted,
    /// Matches of the table's entry at this position. `is_from_node`: of messages between nodes,
    /// which are no client requests.
    Entry { table: Table, position: u32, is_from_node: bool },
    /// Packets for a global counter.
    Counter(Counter),
}

/// The copies that a group makes: the actions on each.
pub type Buckets = Vec<Vec<Action>>;

/// The flows and groups of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    pub flows: BTreeMap<FlowKey, Flow>,
    /// The number of each group. All are of the type that copies packets.
    pub groups: BTreeMap<Buckets, u32>,
    /// Packets per second from each port, by meter number.
    pub meters: BTreeMap<u32, u32>,
}

impl Program {
    /// The flow that matches clients' requests for the entry at this position, and its group, as
    /// `ovs-ofctl` shows them.
    pub fn describe_entry(&self, table: Table, position: usize) -> Option<String> {
        let of_entry = |flow: &Flow| match flow.meaning {
            Meaning::Entry { table: of, position: at, is_from_node } => {
                of == table && at as usize == position && !is_from_node
            }
            _ => false,
        };
        let (FlowKey { table, priority, .. }, flow) = self.flows.iter().find(|(_, flow)| of_entry(flow))?;
        let group = flow.instructions.iter().find_map(|instruction| match instruction {
            Instruction::Apply(actions) => actions.iter().find_map(|action| match action {
                Action::Group(number) => Some(format!(",actions=group:{number}")),
                _ => None,
            }),
            _ => None,
        });
        Some(format!("table={table},priority={priority}{}", group.unwrap_or_default()))
    }
}

/// Tables contain what an OpenFlow switch cannot match or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unsupported {
    #[error("an OpenFlow switch cannot match ranges of keys: address this keyspace by vnode")]
    Records,
    #[error(
        "an OpenFlow switch cannot write chain headers: replicate this keyspace in two phases or by quorum"
    )]
    Chain,
    #[error("an OpenFlow switch cannot evaluate a group's mask: install an entry for each subset")]
    Masks,
}
