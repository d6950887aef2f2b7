//! Statistics and descriptions, which may come in several messages (OpenFlow 1.3.5 §7.3.5).

use alloc::string::String;
use alloc::vec::Vec;

use super::DecodeError;
use super::actions::{Action, Instruction, decode_instructions, encode_instructions, port};
use super::bytes::{Reader, Write};
use super::fields::Match;
use super::tables::{GROUP_ALL, GROUP_ANY, GroupKind, decode_buckets, encode_buckets};

const DESCRIPTION: u16 = 0;
const FLOWS: u16 = 1;
const TABLES: u16 = 3;
const PORT_COUNTS: u16 = 4;
const GROUP_COUNTS: u16 = 6;
const GROUPS: u16 = 7;
const PORTS: u16 = 13;
/// More messages of the same reply follow.
const MORE: u16 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultipartRequest {
    /// Manufacturer and versions of the switch.
    Description,
    /// The flows that a match covers, of one table or of all ([`TABLE_ALL`](super::TABLE_ALL)),
    /// whose cookies equal this one under the mask.
    Flows {
        table: u8,
        cookie: u64,
        cookie_mask: u64,
        matches: Match,
    },
    Tables,
    /// The counters of all ports.
    PortCounts,
    /// The counters of all groups.
    GroupCounts,
    /// The buckets of all groups.
    Groups,
    Ports,
}

impl MultipartRequest {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let kind = match self {
            Self::Description => DESCRIPTION,
            Self::Flows { .. } => FLOWS,
            Self::Tables => TABLES,
            Self::PortCounts => PORT_COUNTS,
            Self::GroupCounts => GROUP_COUNTS,
            Self::Groups => GROUPS,
            Self::Ports => PORTS,
        };
        out.u16(kind);
        out.zeros(6);
        match self {
            Self::Flows { table, cookie, cookie_mask, matches } => {
                out.u8(*table);
                out.zeros(3);
                out.u32(port::ANY);
                out.u32(GROUP_ANY);
                out.zeros(4);
                out.u64(*cookie);
                out.u64(*cookie_mask);
                matches.encode(out);
            }
            Self::PortCounts => {
                out.u32(port::ANY);
                out.zeros(4);
            }
            Self::GroupCounts => {
                out.u32(GROUP_ALL);
                out.zeros(4);
            }
            Self::Description | Self::Tables | Self::Groups | Self::Ports => {}
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = reader.u16()?;
        reader.skip(6)?;
        match kind {
            DESCRIPTION => Ok(Self::Description),
            FLOWS => {
                let table = reader.u8()?;
                reader.skip(15)?;
                let (cookie, cookie_mask) = (reader.u64()?, reader.u64()?);
                Ok(Self::Flows { table, cookie, cookie_mask, matches: Match::decode(reader)? })
            }
            TABLES => Ok(Self::Tables),
            PORT_COUNTS => reader.skip(8).map(|()| Self::PortCounts),
            GROUP_COUNTS => reader.skip(8).map(|()| Self::GroupCounts),
            GROUPS => Ok(Self::Groups),
            PORTS => Ok(Self::Ports),
            value => Err(DecodeError::Unknown { what: "multipart request", value: value.into() }),
        }
    }
}

/// One message of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultipartReply {
    /// Whether more messages of this reply follow.
    pub has_more: bool,
    pub part: Part,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Description(Description),
    Flows(Vec<FlowStatus>),
    Tables(Vec<TableCounts>),
    PortCounts(Vec<PortCounts>),
    GroupCounts(Vec<GroupCounts>),
    Groups(Vec<GroupStatus>),
    Ports(Vec<Port>),
}

/// Manufacturer and versions, as the switch reports them. Texts that are no UTF-8 have replacement characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    pub manufacturer: String,
    pub hardware: String,
    pub software: String,
    pub serial_number: String,
    pub datapath: String,
}

/// A flow in the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStatus {
    pub table: u8,
    pub priority: u16,
    pub cookie: u64,
    pub packets: u64,
    pub bytes: u64,
    pub matches: Match,
    pub instructions: Vec<Instruction>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableCounts {
    pub table: u8,
    pub flows: u32,
    /// Packets looked up.
    pub lookups: u64,
    /// Packets that matched a flow.
    pub matched: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortCounts {
    pub port: u32,
    pub received_packets: u64,
    pub sent_packets: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub received_dropped: u64,
    pub sent_dropped: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupCounts {
    pub group: u32,
    /// Number of flows and groups that name it.
    pub references: u32,
    pub packets: u64,
    pub bytes: u64,
    /// Packets and bytes of each bucket.
    pub buckets: Vec<(u64, u64)>,
}

/// A group in the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    pub kind: GroupKind,
    pub group: u32,
    pub buckets: Vec<Vec<Action>>,
}

/// A port of the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub number: u32,
    pub mac: [u8; 6],
    pub name: String,
    /// An operator has taken it down.
    pub is_disabled: bool,
    /// There is no link.
    pub is_down: bool,
}

impl MultipartReply {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u16(match &self.part {
            Part::Description(_) => DESCRIPTION,
            Part::Flows(_) => FLOWS,
            Part::Tables(_) => TABLES,
            Part::PortCounts(_) => PORT_COUNTS,
            Part::GroupCounts(_) => GROUP_COUNTS,
            Part::Groups(_) => GROUPS,
            Part::Ports(_) => PORTS,
        });
        out.u16(if self.has_more { MORE } else { 0 });
        out.zeros(4);
        match &self.part {
            Part::Description(description) => description.encode(out),
            Part::Flows(flows) => flows.iter().for_each(|flow| flow.encode(out)),
            Part::Tables(tables) => tables.iter().for_each(|table| table.encode(out)),
            Part::PortCounts(ports) => ports.iter().for_each(|port| port.encode(out)),
            Part::GroupCounts(groups) => groups.iter().for_each(|group| group.encode(out)),
            Part::Groups(groups) => groups.iter().for_each(|group| group.encode(out)),
            Part::Ports(ports) => ports.iter().for_each(|port| port.encode(out)),
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (kind, flags) = (reader.u16()?, reader.u16()?);
        reader.skip(4)?;
        let part = match kind {
            DESCRIPTION => Part::Description(Description::decode(reader)?),
            FLOWS => Part::Flows(reader.all(FlowStatus::decode)?),
            TABLES => Part::Tables(reader.all(TableCounts::decode)?),
            PORT_COUNTS => Part::PortCounts(reader.all(PortCounts::decode)?),
            GROUP_COUNTS => Part::GroupCounts(reader.all(GroupCounts::decode)?),
            GROUPS => Part::Groups(reader.all(GroupStatus::decode)?),
            PORTS => Part::Ports(reader.all(Port::decode)?),
            value => return Err(DecodeError::Unknown { what: "multipart reply", value: value.into() }),
        };
        Ok(Self { has_more: flags & MORE != 0, part })
    }
}

/// Writes a text into a field of fixed size, of which the last byte is zero.
fn encode_text(text: &str, bytes: usize, out: &mut Vec<u8>) {
    let length = text.len().min(bytes - 1);
    out.bytes(&text.as_bytes()[..length]);
    out.zeros(bytes - length);
}

fn decode_text(reader: &mut Reader<'_>, bytes: usize) -> Result<String, DecodeError> {
    let field = reader.take(bytes)?;
    let text = field.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

impl Description {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_text(&self.manufacturer, 256, out);
        encode_text(&self.hardware, 256, out);
        encode_text(&self.software, 256, out);
        encode_text(&self.serial_number, 32, out);
        encode_text(&self.datapath, 256, out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            manufacturer: decode_text(reader, 256)?,
            hardware: decode_text(reader, 256)?,
            software: decode_text(reader, 256)?,
            serial_number: decode_text(reader, 32)?,
            datapath: decode_text(reader, 256)?,
        })
    }
}

impl FlowStatus {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(0);
        out.u8(self.table);
        out.zeros(9); // padding, and how long it exists
        out.u16(self.priority);
        out.zeros(10); // timeouts, flags, padding
        out.u64(self.cookie);
        out.u64(self.packets);
        out.u64(self.bytes);
        self.matches.encode(out);
        encode_instructions(&self.instructions, out);
        out.set_length(start, start);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut body = reader.sized_part("flow status")?;
        let table = body.u8()?;
        body.skip(9)?;
        let priority = body.u16()?;
        body.skip(10)?;
        let (cookie, packets, bytes) = (body.u64()?, body.u64()?, body.u64()?);
        let matches = Match::decode(&mut body)?;
        let instructions = decode_instructions(&mut body)?;
        Ok(Self { table, priority, cookie, packets, bytes, matches, instructions })
    }
}

impl TableCounts {
    fn encode(&self, out: &mut Vec<u8>) {
        out.u8(self.table);
        out.zeros(3);
        out.u32(self.flows);
        out.u64(self.lookups);
        out.u64(self.matched);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let table = reader.u8()?;
        reader.skip(3)?;
        Ok(Self { table, flows: reader.u32()?, lookups: reader.u64()?, matched: reader.u64()? })
    }
}

impl PortCounts {
    fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.port);
        out.zeros(4);
        for count in [
            self.received_packets,
            self.sent_packets,
            self.received_bytes,
            self.sent_bytes,
            self.received_dropped,
            self.sent_dropped,
        ] {
            out.u64(count);
        }
        out.zeros(6 * 8 + 8); // errors and collisions, and how long the port exists
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let port = reader.u32()?;
        reader.skip(4)?;
        let counts = Self {
            port,
            received_packets: reader.u64()?,
            sent_packets: reader.u64()?,
            received_bytes: reader.u64()?,
            sent_bytes: reader.u64()?,
            received_dropped: reader.u64()?,
            sent_dropped: reader.u64()?,
        };
        reader.skip(6 * 8 + 8)?;
        Ok(counts)
    }
}

impl GroupCounts {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(0);
        out.zeros(2);
        out.u32(self.group);
        out.u32(self.references);
        out.zeros(4);
        out.u64(self.packets);
        out.u64(self.bytes);
        out.zeros(8); // how long it exists
        for (packets, bytes) in &self.buckets {
            out.u64(*packets);
            out.u64(*bytes);
        }
        out.set_length(start, start);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut body = reader.sized_part("group counts")?;
        body.skip(2)?;
        let (group, references) = (body.u32()?, body.u32()?);
        body.skip(4)?;
        let (packets, bytes) = (body.u64()?, body.u64()?);
        body.skip(8)?;
        let buckets = body.all(|body| Ok((body.u64()?, body.u64()?)))?;
        Ok(Self { group, references, packets, bytes, buckets })
    }
}

impl GroupStatus {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(0);
        out.u8(self.kind as u8);
        out.zeros(1);
        out.u32(self.group);
        encode_buckets(&self.buckets, out);
        out.set_length(start, start);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut body = reader.sized_part("group status")?;
        let kind = GroupKind::decode(body.u8()?)?;
        body.skip(1)?;
        Ok(Self { kind, group: body.u32()?, buckets: decode_buckets(&mut body)? })
    }
}

/// Bits of a port's configuration and state: disabled by an operator; without a link.
const PORT_DOWN: u32 = 1;
const LINK_DOWN: u32 = 1;

impl Port {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.number);
        out.zeros(4);
        out.bytes(&self.mac);
        out.zeros(2);
        encode_text(&self.name, 16, out);
        out.u32(if self.is_disabled { PORT_DOWN } else { 0 });
        out.u32(if self.is_down { LINK_DOWN } else { 0 });
        out.zeros(24); // features and speeds
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let number = reader.u32()?;
        reader.skip(4)?;
        let mac = reader.array()?;
        reader.skip(2)?;
        let name = decode_text(reader, 16)?;
        let (config, state) = (reader.u32()?, reader.u32()?);
        reader.skip(24)?;
        let (is_disabled, is_down) = (config & PORT_DOWN != 0, state & LINK_DOWN != 0);
        Ok(Self { number, mac, name, is_disabled, is_down })
    }
}
