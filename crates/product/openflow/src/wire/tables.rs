//! Changes of flows, groups and meters (OpenFlow 1.3.5 §7.3.4).

use alloc::vec::Vec;

use super::DecodeError;
use super::actions::{
    Action, Instruction, decode_actions, decode_instructions, encode_actions, encode_instructions, port,
};
use super::bytes::{Reader, Write, known};
use super::fields::Match;

/// No packet is buffered in the switch.
pub(super) const NO_BUFFER: u32 = 0xffff_ffff;
/// All tables, in requests.
pub const TABLE_ALL: u8 = 0xff;
/// All groups, or none.
pub const GROUP_ANY: u32 = 0xffff_ffff;
/// All groups, when they are deleted.
pub const GROUP_ALL: u32 = 0xffff_fffc;
/// All meters, when they are deleted.
pub const METER_ALL: u32 = 0xffff_ffff;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowCommand {
    /// Add a flow, or replace the one with the same table, priority and match.
    Add = 0,
    /// Set the instructions of the flow with the same priority and match, which keeps its counts.
    ModifyStrict = 2,
    /// Delete all flows that a match covers.
    Delete = 3,
    /// Delete the flow with the same priority and match.
    DeleteStrict = 4,
}

/// A change of a flow table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMod {
    pub command: FlowCommand,
    pub table: u8,
    pub priority: u16,
    /// The controller's own mark, which the switch reports with the flow.
    pub cookie: u64,
    /// Delete only flows whose cookies equal `cookie` in these bits.
    pub cookie_mask: u64,
    pub matches: Match,
    pub instructions: Vec<Instruction>,
}

impl FlowMod {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.cookie);
        out.u64(self.cookie_mask);
        out.u8(self.table);
        out.u8(self.command as u8);
        out.u16(0); // never expires when idle
        out.u16(0); // nor otherwise
        out.u16(self.priority);
        out.u32(NO_BUFFER);
        out.u32(port::ANY);
        out.u32(GROUP_ANY);
        out.u16(0); // flags
        out.zeros(2);
        self.matches.encode(out);
        encode_instructions(&self.instructions, out);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (cookie, cookie_mask, table) = (reader.u64()?, reader.u64()?, reader.u8()?);
        let command = match reader.u8()? {
            0 => FlowCommand::Add,
            2 => FlowCommand::ModifyStrict,
            3 => FlowCommand::Delete,
            4 => FlowCommand::DeleteStrict,
            value => return Err(DecodeError::Unknown { what: "flow command", value: value.into() }),
        };
        reader.skip(4)?;
        let priority = reader.u16()?;
        reader.skip(16)?;
        let matches = Match::decode(reader)?;
        let instructions = decode_instructions(reader)?;
        Ok(Self { command, table, priority, cookie, cookie_mask, matches, instructions })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupCommand {
    Add = 0,
    Modify = 1,
    Delete = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupKind {
    /// A copy of the packet to each bucket.
    All = 0,
    /// The packet to one bucket, which the switch selects.
    Select = 1,
    /// The only bucket.
    Indirect = 2,
    /// The first bucket that is alive.
    FastFailover = 3,
}

impl GroupKind {
    pub(super) fn decode(value: u8) -> Result<Self, DecodeError> {
        known("group type", value.into(), &[Self::All, Self::Select, Self::Indirect, Self::FastFailover])
    }
}

/// A change of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMod {
    pub command: GroupCommand,
    pub kind: GroupKind,
    pub group: u32,
    /// The actions on each copy of the packet.
    pub buckets: Vec<Vec<Action>>,
}

impl GroupMod {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u16(self.command as u16);
        out.u8(self.kind as u8);
        out.zeros(1);
        out.u32(self.group);
        encode_buckets(&self.buckets, out);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let commands = [GroupCommand::Add, GroupCommand::Modify, GroupCommand::Delete];
        let command = known("group command", reader.u16()?.into(), &commands)?;
        let kind = GroupKind::decode(reader.u8()?)?;
        reader.skip(1)?;
        Ok(Self { command, kind, group: reader.u32()?, buckets: decode_buckets(reader)? })
    }
}

pub(super) fn encode_buckets(buckets: &[Vec<Action>], out: &mut Vec<u8>) {
    for actions in buckets {
        let start = out.len();
        out.u16(0);
        out.u16(0); // weight, for groups that select
        out.u32(port::ANY);
        out.u32(GROUP_ANY);
        out.zeros(4);
        encode_actions(actions, out);
        out.set_length(start, start);
    }
}

pub(super) fn decode_buckets(reader: &mut Reader<'_>) -> Result<Vec<Vec<Action>>, DecodeError> {
    reader.all(|reader| {
        let mut bucket = reader.sized_part("bucket")?;
        bucket.skip(14)?;
        decode_actions(&mut bucket)
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterCommand {
    Add = 0,
    Modify = 1,
    Delete = 2,
}

/// A change of a meter, which drops packets above a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterMod {
    pub command: MeterCommand,
    pub meter: u32,
    /// Packets per second.
    pub rate: u32,
    /// Packets that may come at once.
    pub burst: u32,
}

/// The rate is in packets, and a burst is given.
const METER_FLAGS: u16 = 2 | 4;
const METER_DROP: u16 = 1;

impl MeterMod {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u16(self.command as u16);
        out.u16(METER_FLAGS);
        out.u32(self.meter);
        if self.command != MeterCommand::Delete {
            out.u16(METER_DROP);
            out.u16(16);
            out.u32(self.rate);
            out.u32(self.burst);
            out.zeros(4);
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let commands = [MeterCommand::Add, MeterCommand::Modify, MeterCommand::Delete];
        let command = known("meter command", reader.u16()?.into(), &commands)?;
        let (flags, meter) = (reader.u16()?, reader.u32()?);
        if command == MeterCommand::Delete {
            return Ok(Self { command, meter, rate: 0, burst: 0 });
        }
        let (kind, mut band) = reader.typed_part("meter band")?;
        if (flags, kind) != (METER_FLAGS, METER_DROP) {
            return Err(DecodeError::Unknown { what: "meter band", value: kind.into() });
        }
        let meter = Self { command, meter, rate: band.u32()?, burst: band.u32()? };
        band.skip(4)?;
        band.end()?;
        Ok(meter)
    }
}
