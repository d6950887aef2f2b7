//! A model of an OpenFlow switch, for tests: what the specification says of flows, groups and
//! actions, on frames.

use std::collections::BTreeMap;

use crate::wire::{
    Action, Field, FlowCommand, FlowMod, GROUP_ALL, GroupCommand, GroupKind, GroupMod, Instruction, Match,
    Message, MeterCommand, port,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Installed {
    pub(crate) instructions: Vec<Instruction>,
    pub(crate) packets: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelSwitch {
    /// By table and priority, the highest first, and match.
    pub(crate) flows: BTreeMap<Key, Installed>,
    pub(crate) groups: BTreeMap<u32, Vec<Vec<Action>>>,
    pub(crate) meters: BTreeMap<u32, u32>,
    /// Frames for the controller.
    pub(crate) to_controller: Vec<(u16, Vec<u8>)>,
}

/// A packet on its way through the tables.
struct Packet {
    in_port: u16,
    metadata: u64,
    frame: Vec<u8>,
}

type Key = (u8, core::cmp::Reverse<u16>, Match);

impl ModelSwitch {
    /// Flows and groups, without counts.
    pub(crate) fn state(&self) -> Self {
        let mut state = self.clone();
        state.flows.values_mut().for_each(|flow| flow.packets = 0);
        state.to_controller.clear();
        state
    }

    /// Carries out a change. The error names what a switch would refuse.
    pub(crate) fn change(&mut self, message: &Message) -> Result<(), String> {
        match message {
            Message::FlowMod(flow) => self.change_flow(flow),
            Message::GroupMod(group) => self.change_group(group),
            Message::MeterMod(meter) => match (meter.command, self.meters.contains_key(&meter.meter)) {
                (MeterCommand::Delete, _) => {
                    self.meters.remove(&meter.meter);
                    Ok(())
                }
                (MeterCommand::Add, false) | (MeterCommand::Modify, true) => {
                    self.meters.insert(meter.meter, meter.rate);
                    Ok(())
                }
                _ => Err(format!("{meter:?}")),
            },
            other => Err(format!("no change: {other:?}")),
        }
    }

    fn change_flow(&mut self, flow: &FlowMod) -> Result<(), String> {
        let key = (flow.table, core::cmp::Reverse(flow.priority), flow.matches.clone());
        let groups = flow.instructions.iter().flat_map(|instruction| match instruction {
            Instruction::Apply(actions) => actions.as_slice(),
            _ => &[],
        });
        for action in groups {
            if let Action::Group(group) = action
                && !self.groups.contains_key(group)
            {
                return Err(format!("no group {group}"));
            }
        }
        let instructions = flow.instructions.clone();
        match flow.command {
            FlowCommand::Add => drop(self.flows.insert(key, Installed { instructions, packets: 0 })),
            FlowCommand::ModifyStrict => {
                if let Some(installed) = self.flows.get_mut(&key) {
                    installed.instructions = instructions;
                }
            }
            FlowCommand::DeleteStrict => drop(self.flows.remove(&key)),
            FlowCommand::Delete => self.flows.clear(),
        }
        Ok(())
    }

    fn change_group(&mut self, group: &GroupMod) -> Result<(), String> {
        assert_eq!(group.kind, GroupKind::All);
        match (group.command, self.groups.contains_key(&group.group)) {
            (GroupCommand::Add, false) | (GroupCommand::Modify, true) => {
                self.groups.insert(group.group, group.buckets.clone());
                Ok(())
            }
            (GroupCommand::Delete, _) if group.group == GROUP_ALL => {
                self.groups.clear();
                Ok(())
            }
            (GroupCommand::Delete, _) => {
                // A switch deletes the flows of a group with it.
                self.groups.remove(&group.group);
                let uses = |instruction: &Instruction| matches!(instruction, Instruction::Apply(actions) if actions.contains(&Action::Group(group.group)));
                self.flows.retain(|_, flow| !flow.instructions.iter().any(uses));
                Ok(())
            }
            _ => Err(format!("{:?} of group {}", group.command, group.group)),
        }
    }

    /// The frames that leave, ascending by port.
    pub(crate) fn process(&mut self, in_port: u16, frame: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let mut packet = Packet { in_port, metadata: 0, frame: frame.to_vec() };
        let (mut table, mut sent) = (Some(0).filter(|_| frame.len() >= 14), Vec::new());
        while let Some(current) = table.take() {
            let found = self
                .flows
                .iter_mut()
                .find(|((at, _, matches), _)| *at == current && matches.covers(|field| packet.field(field)));
            let Some((_, flow)) = found else { break };
            flow.packets += 1;
            for instruction in flow.instructions.clone() {
                match instruction {
                    Instruction::GotoTable(next) => {
                        assert!(next > current, "a switch goes forward only");
                        table = Some(next);
                    }
                    Instruction::WriteMetadata { value, mask } => {
                        packet.metadata = packet.metadata & !mask | value & mask;
                    }
                    Instruction::Apply(actions) => self.apply(&mut packet, &actions, &mut sent),
                    Instruction::Meter(meter) => assert!(self.meters.contains_key(&meter)),
                    Instruction::Other(kind) => panic!("instruction {kind}"),
                }
            }
        }
        sent.sort_unstable();
        sent
    }

    fn apply(&mut self, packet: &mut Packet, actions: &[Action], sent: &mut Vec<(u16, Vec<u8>)>) {
        for action in actions {
            match *action {
                Action::Output { port: port::IN_PORT, .. } => {
                    sent.push((packet.in_port, packet.frame.clone()));
                }
                Action::Output { port: port::CONTROLLER, .. } => {
                    self.to_controller.push((packet.in_port, packet.frame.clone()));
                }
                Action::Output { port, .. } if port == packet.in_port.into() => {}
                Action::Output { port, .. } => {
                    sent.push((port.try_into().expect("a real port"), packet.frame.clone()));
                }
                Action::Group(group) => {
                    for bucket in self.groups[&group].clone() {
                        let mut copy = Packet {
                            in_port: packet.in_port,
                            metadata: packet.metadata,
                            frame: packet.frame.clone(),
                        };
                        self.apply(&mut copy, &bucket, sent);
                    }
                }
                Action::Set(field, value) => packet.set(field, value),
                Action::Other(kind) => panic!("action {kind}"),
            }
        }
    }
}

impl Packet {
    fn number(&self, at: usize, bytes: usize) -> Option<u64> {
        let bytes = self.frame.get(at..at + bytes)?;
        Some(bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// The type behind a VLAN tag, if there is one, and where the payload begins.
    fn eth_type(&self) -> Option<(u64, usize)> {
        match self.number(12, 2)? {
            // As in Open vSwitch: a tag that is cut off is no tag.
            0x8100 | 0x88a8 if self.frame.len() >= 18 => Some((self.number(16, 2)?, 18)),
            other => Some((other, 14)),
        }
    }

    fn ipv4_at(&self) -> Option<usize> {
        let (_, at) = self.eth_type().filter(|(kind, _)| *kind == 0x0800)?;
        let first = self.number(at, 1)?;
        let bytes = usize::try_from(first & 15).ok()? * 4;
        let total = usize::try_from(self.number(at + 2, 2)?).ok()?;
        let is_sound = first >> 4 == 4 && bytes >= 20 && total >= bytes && total <= self.frame.len() - at;
        is_sound.then_some(at)
    }

    /// A field of IPv4. As in Open vSwitch, all are zero if the header is not sound.
    fn ipv4(&self, offset: usize, bytes: usize) -> Option<u64> {
        self.eth_type().filter(|(kind, _)| *kind == 0x0800)?;
        self.ipv4_at().map_or(Some(0), |at| self.number(at + offset, bytes))
    }

    fn udp_at(&self) -> Option<usize> {
        let at = self.ipv4_at()?;
        let bytes = usize::from(self.frame[at] & 15) * 4;
        (self.number(at + 9, 1)? == 17).then_some(at + bytes)
    }

    fn udp_port(&self, offset: usize) -> Option<u64> {
        let udp_at = self.udp_at()?;
        let is_fragment = self.number(self.ipv4_at()? + 6, 2)? & 0x3fff != 0;
        let is_whole = self.frame.len() >= udp_at + 8;
        if is_fragment || !is_whole { Some(0) } else { self.number(udp_at + offset, 2) }
    }

    /// A field of ARP; zero if the frame ends before.
    fn arp(&self, offset: usize, bytes: usize) -> Option<u64> {
        let (_, at) = self.eth_type().filter(|(kind, _)| *kind == 0x0806)?;
        if self.frame.len() < at + 28 { Some(0) } else { self.number(at + offset, bytes) }
    }

    fn field(&self, field: Field) -> Option<u64> {
        match field {
            Field::InPort => Some(self.in_port.into()),
            Field::Metadata => Some(self.metadata),
            Field::EthDst => self.number(0, 6),
            Field::EthSrc => self.number(6, 6),
            Field::EthType => Some(self.eth_type()?.0),
            Field::VlanVid => match self.number(12, 2)? {
                0x8100 | 0x88a8 if self.frame.len() >= 18 => Some(self.number(14, 2)? & 0xfff | 0x1000),
                _ => Some(0),
            },
            Field::IpProto => self.ipv4(9, 1),
            Field::Ipv4Src => self.ipv4(12, 4),
            Field::Ipv4Dst => self.ipv4(16, 4),
            Field::UdpSrc => self.udp_port(0),
            Field::UdpDst => self.udp_port(2),
            Field::ArpOp => self.arp(6, 2),
            Field::ArpSha => self.arp(8, 6),
            Field::ArpSpa => self.arp(14, 4),
            Field::ArpTpa => self.arp(24, 4),
        }
    }

    fn set(&mut self, field: Field, value: u64) {
        let value = value.to_be_bytes();
        let mut write =
            |at: usize, bytes: usize| self.frame[at..at + bytes].copy_from_slice(&value[8 - bytes..]);
        match field {
            Field::EthDst => write(0, 6),
            Field::EthSrc => write(6, 6),
            Field::Ipv4Dst => {
                let (ip, udp) = (self.ipv4_at().expect("IPv4"), self.udp_at());
                self.replace(ip + 16, &value[4..], &[(ip + 10, false)], udp.map(|at| at + 6));
            }
            Field::UdpDst => {
                let udp = self.udp_at().expect("UDP");
                self.replace(udp + 2, &value[6..], &[], Some(udp + 6));
            }
            other => panic!("no test sets {other:?}"),
        }
    }

    /// Replaces bytes, and updates checksums that cover them: headers', and one of UDP.
    fn replace(&mut self, at: usize, new: &[u8], headers: &[(usize, bool)], udp: Option<usize>) {
        let old = self.frame[at..at + new.len()].to_vec();
        self.frame[at..at + new.len()].copy_from_slice(new);
        for (checksum, is_udp) in headers.iter().copied().chain(udp.map(|at| (at, true))) {
            let before = self.number(checksum, 2).expect("a checksum") as u32;
            if is_udp && before == 0 {
                continue;
            }
            let words = |bytes: &[u8]| -> Vec<u32> {
                bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).collect()
            };
            let mut sum = !before & 0xffff;
            for (old, new) in words(&old).into_iter().zip(words(new)) {
                sum += (!old & 0xffff) + new;
            }
            while sum > 0xffff {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            let after = match !sum as u16 {
                0 if is_udp => 0xffff,
                other => other,
            };
            self.frame[checksum..checksum + 2].copy_from_slice(&after.to_be_bytes());
        }
    }
}
