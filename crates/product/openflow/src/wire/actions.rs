//! Actions and instructions (OpenFlow 1.3.5 §7.2.4, §7.2.5).

use alloc::vec::Vec;

use super::DecodeError;
use super::bytes::{Reader, Write};
use super::fields::{Field, decode_field};

/// Ports with a meaning of their own.
pub mod port {
    /// Highest number of a real port.
    pub const MAX: u32 = 0xffff_ff00;
    /// The port by which the packet arrived.
    pub const IN_PORT: u32 = 0xffff_fff8;
    /// Process the packet by the tables, from the first one. For PACKET_OUT only.
    pub const TABLE: u32 = 0xffff_fff9;
    /// All ports except the one by which the packet arrived.
    pub const ALL: u32 = 0xffff_fffc;
    /// Send the packet to the controller.
    pub const CONTROLLER: u32 = 0xffff_fffd;
    /// No port, or any.
    pub const ANY: u32 = 0xffff_ffff;
}

/// Send the whole packet to the controller.
pub const LENGTH_WHOLE: u16 = 0xffff;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Send the packet as it is now. `length_max`: how much of it goes to the controller.
    Output { port: u32, length_max: u16 },
    /// Process the packet by this group.
    Group(u32),
    /// Set a field.
    Set(Field, u64),
    /// An action, found in a switch, that is unknown here.
    Other(u16),
}

const OUTPUT: u16 = 0;
const GROUP: u16 = 22;
const SET_FIELD: u16 = 25;

impl Action {
    /// Sends the packet out of a port.
    pub const fn output(port: u32) -> Self {
        Self::Output { port, length_max: 0 }
    }

    fn encode(self, out: &mut Vec<u8>) {
        let start = out.len();
        let kind = match self {
            Self::Output { .. } => OUTPUT,
            Self::Group(_) => GROUP,
            Self::Set(..) => SET_FIELD,
            Self::Other(kind) => kind,
        };
        out.u16(kind);
        out.u16(0);
        match self {
            Self::Output { port, length_max } => {
                out.u32(port);
                out.u16(length_max);
            }
            Self::Group(group) => out.u32(group),
            Self::Set(field, value) => field.write_value(out, value),
            Self::Other(_) => out.u32(0),
        }
        out.pad_since(start);
        out.set_length(start + 2, start);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (kind, mut body) = reader.typed_part("action")?;
        let action = match kind {
            OUTPUT => {
                let (port, length_max) = (body.u32()?, body.u16()?);
                body.skip(6)?;
                Self::Output { port, length_max }
            }
            GROUP => Self::Group(body.u32()?),
            SET_FIELD => {
                let set = decode_field(&mut body)?;
                let set = set.filter(|set| set.mask == set.field.all_bits());
                body.rest();
                set.map_or(Self::Other(kind), |set| Self::Set(set.field, set.value))
            }
            kind => {
                body.rest();
                Self::Other(kind)
            }
        };
        body.end()?;
        Ok(action)
    }
}

pub(super) fn encode_actions(actions: &[Action], out: &mut Vec<u8>) {
    actions.iter().for_each(|action| action.encode(out));
}

pub(super) fn decode_actions(reader: &mut Reader<'_>) -> Result<Vec<Action>, DecodeError> {
    reader.all(Action::decode)
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Instruction {
    /// Continue with a later table.
    GotoTable(u8),
    /// Set the metadata under the mask.
    WriteMetadata { value: u64, mask: u64 },
    /// Carry out these actions at once, in their order.
    Apply(Vec<Action>),
    /// Drop the packet if this meter's rate is exceeded.
    Meter(u32),
    /// An instruction, found in a switch, that is unknown here.
    Other(u16),
}

const GOTO_TABLE: u16 = 1;
const WRITE_METADATA: u16 = 2;
const APPLY_ACTIONS: u16 = 4;
const METER: u16 = 6;

impl Instruction {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(match self {
            Self::GotoTable(_) => GOTO_TABLE,
            Self::WriteMetadata { .. } => WRITE_METADATA,
            Self::Apply(_) => APPLY_ACTIONS,
            Self::Meter(_) => METER,
            Self::Other(kind) => *kind,
        });
        out.u16(0);
        match self {
            Self::GotoTable(table) => {
                out.u8(*table);
                out.zeros(3);
            }
            Self::WriteMetadata { value, mask } => {
                out.zeros(4);
                out.u64(*value);
                out.u64(*mask);
            }
            Self::Apply(actions) => {
                out.zeros(4);
                encode_actions(actions, out);
            }
            Self::Meter(meter) => out.u32(*meter),
            Self::Other(_) => out.zeros(4),
        }
        out.set_length(start + 2, start);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (kind, mut body) = reader.typed_part("instruction")?;
        let instruction = match kind {
            GOTO_TABLE => {
                let table = body.u8()?;
                body.skip(3)?;
                Self::GotoTable(table)
            }
            WRITE_METADATA => {
                body.skip(4)?;
                Self::WriteMetadata { value: body.u64()?, mask: body.u64()? }
            }
            APPLY_ACTIONS => {
                body.skip(4)?;
                Self::Apply(decode_actions(&mut body)?)
            }
            METER => Self::Meter(body.u32()?),
            kind => {
                body.rest();
                Self::Other(kind)
            }
        };
        body.end()?;
        Ok(instruction)
    }
}

pub(super) fn encode_instructions(instructions: &[Instruction], out: &mut Vec<u8>) {
    instructions.iter().for_each(|instruction| instruction.encode(out));
}

pub(super) fn decode_instructions(reader: &mut Reader<'_>) -> Result<Vec<Instruction>, DecodeError> {
    reader.all(Instruction::decode)
}
