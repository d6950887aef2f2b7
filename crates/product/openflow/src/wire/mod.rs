//! The messages of OpenFlow 1.3, as bytes (Open Networking Foundation TS-023, OpenFlow 1.3.5 §7),
//! and bundles as an extension of it (EXT-230).
//!
//! ```text
//!   0        1        2                 4                                   8
//!   ┌────────┬────────┬─────────────────┬───────────────────────────────────┬───────────
//!   │ version│ type   │ length          │ transaction id                    │ body …
//!   └────────┴────────┴─────────────────┴───────────────────────────────────┴───────────
//! ```
//!
//! Decoding is strict: every length must be exact, every value known, no match field twice. Padding
//! is ignored. Only fields, actions and instructions that another controller may have put into the
//! switch are decoded as *other* instead, so that their flows can be deleted.

mod actions;
mod bytes;
mod fields;
mod multipart;
mod tables;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;
use thiserror::Error;

pub use actions::{Action, Instruction, LENGTH_WHOLE, port};
use actions::{decode_actions, encode_actions};
use bytes::{Reader, Write, known};
pub use fields::{Field, FieldMatch, Match, VLAN_NONE};
pub use multipart::{
    Description, FlowStatus, GroupCounts, GroupStatus, MultipartReply, MultipartRequest, Part, Port,
    PortCounts, TableCounts,
};
use tables::NO_BUFFER;
pub use tables::{
    FlowCommand, FlowMod, GROUP_ALL, GROUP_ANY, GroupCommand, GroupKind, GroupMod, METER_ALL, MeterCommand,
    MeterMod, TABLE_ALL,
};

/// OpenFlow 1.3 in the header of a message.
pub const VERSION: u8 = 4;
/// Size of the header.
pub const HEADER_BYTES: usize = 8;
/// Size of the longest message.
pub const MESSAGE_BYTES_MAX: usize = u16::MAX as usize;

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// A structure is shorter than its fields.
    #[error("{0} is too short")]
    Truncated(&'static str),
    /// A length contradicts the content.
    #[error("{0} has a wrong length")]
    Length(&'static str),
    /// A value has no meaning.
    #[error("unknown {what} {value}")]
    Unknown { what: &'static str, value: u64 },
    /// Something occurs twice.
    #[error("{0} occurs twice")]
    Repeated(&'static str),
    /// The message is of another version of OpenFlow.
    #[error("message of OpenFlow wire version {0}; 4, which is OpenFlow 1.3, is required")]
    Version(u8),
}

/// The message is longer than the protocol allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a message of {bytes} bytes; at most {MESSAGE_BYTES_MAX} are possible")]
pub struct TooLong {
    /// Its size.
    pub bytes: usize,
}

/// A message, without its transaction id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Hello(Hello),
    Error(SwitchError),
    EchoRequest(Vec<u8>),
    EchoReply(Vec<u8>),
    FeaturesRequest,
    FeaturesReply(Features),
    GetConfigRequest,
    GetConfigReply(Config),
    SetConfig(Config),
    PacketIn(PacketIn),
    PortStatus { change: PortChange, port: Port },
    PacketOut(PacketOut),
    FlowMod(FlowMod),
    GroupMod(GroupMod),
    MeterMod(MeterMod),
    MultipartRequest(MultipartRequest),
    MultipartReply(MultipartReply),
    BarrierRequest,
    BarrierReply,
    RoleRequest(RoleStatus),
    RoleReply(RoleStatus),
    Bundle(BundleControl),
    BundleAdd(BundleAdd),
}

/// The versions that the sender speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Version of the message's header: the highest that the sender speaks.
    pub version: u8,
    /// Bit *v* for wire version *v*, if the sender lists them.
    pub versions: Option<u32>,
}

impl Hello {
    /// Whether the sender speaks this wire version.
    pub fn speaks(&self, version: u8) -> bool {
        match self.versions {
            Some(versions) => versions.checked_shr(version.into()).is_some_and(|bits| bits & 1 == 1),
            None => self.version >= version,
        }
    }
}

/// The switch refuses a message, or reports a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchError {
    pub kind: u16,
    pub code: u16,
    /// At least 64 bytes of the refused message, if it has as many; for a failed HELLO a text.
    pub data: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    pub datapath: u64,
    /// Packets that the switch can buffer.
    pub buffers: u32,
    pub tables: u8,
    pub auxiliary: u8,
    pub capabilities: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How the switch treats IP fragments; 0: as any packet.
    pub fragments: u16,
    /// How much of a packet goes to the controller if a table has no flow for it.
    pub miss_length_max: u16,
}

/// A packet for the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketIn {
    /// The packet's id in the switch's buffer, if it is there.
    pub buffer: Option<u32>,
    /// The packet's size; more than `data` if that is only its beginning.
    pub bytes: u16,
    /// 0: no flow matched; 1: an action sent it; 2: its TTL is invalid.
    pub reason: u8,
    pub table: u8,
    /// The cookie of the flow that sent it.
    pub cookie: u64,
    /// Fields that are not in the packet, its port among them.
    pub matches: Match,
    pub data: Vec<u8>,
}

/// A packet from the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOut {
    /// The port by which it counts as having arrived, or [`port::CONTROLLER`].
    pub in_port: u32,
    pub actions: Vec<Action>,
    pub data: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortChange {
    Added,
    Deleted,
    Modified,
}

/// A controller's rights over a switch that several controllers may connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// In requests: no change.
    Keep,
    Equal,
    /// The only one that may change anything.
    Primary,
    /// May only read.
    Secondary,
}

/// A role, and the generation that orders the claims to be primary: the switch refuses one that is
/// older than the newest it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleStatus {
    pub role: Role,
    pub generation: u64,
}

/// A step of a bundle: messages that take effect together, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleControl {
    pub bundle: u32,
    pub step: BundleStep,
    pub flags: u16,
}

/// Flags of a bundle: no packet sees a part of it; its messages are carried out in their order.
pub const BUNDLE_ATOMIC: u16 = 1;
pub const BUNDLE_ORDERED: u16 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BundleStep {
    OpenRequest,
    OpenReply,
    CloseRequest,
    CloseReply,
    CommitRequest,
    CommitReply,
    DiscardRequest,
    DiscardReply,
}

impl BundleStep {
    const ALL: [Self; 8] = [
        Self::OpenRequest,
        Self::OpenReply,
        Self::CloseRequest,
        Self::CloseReply,
        Self::CommitRequest,
        Self::CommitReply,
        Self::DiscardRequest,
        Self::DiscardReply,
    ];
}

/// A message that belongs to a bundle. Only changes of flows, groups and meters may be in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleAdd {
    pub bundle: u32,
    pub flags: u16,
    pub message: Box<Message>,
}

mod kind {
    pub(super) const HELLO: u8 = 0;
    pub(super) const ERROR: u8 = 1;
    pub(super) const ECHO_REQUEST: u8 = 2;
    pub(super) const ECHO_REPLY: u8 = 3;
    pub(super) const EXPERIMENTER: u8 = 4;
    pub(super) const FEATURES_REQUEST: u8 = 5;
    pub(super) const FEATURES_REPLY: u8 = 6;
    pub(super) const GET_CONFIG_REQUEST: u8 = 7;
    pub(super) const GET_CONFIG_REPLY: u8 = 8;
    pub(super) const SET_CONFIG: u8 = 9;
    pub(super) const PACKET_IN: u8 = 10;
    pub(super) const PORT_STATUS: u8 = 12;
    pub(super) const PACKET_OUT: u8 = 13;
    pub(super) const FLOW_MOD: u8 = 14;
    pub(super) const GROUP_MOD: u8 = 15;
    pub(super) const MULTIPART_REQUEST: u8 = 18;
    pub(super) const MULTIPART_REPLY: u8 = 19;
    pub(super) const BARRIER_REQUEST: u8 = 20;
    pub(super) const BARRIER_REPLY: u8 = 21;
    pub(super) const ROLE_REQUEST: u8 = 24;
    pub(super) const ROLE_REPLY: u8 = 25;
    pub(super) const METER_MOD: u8 = 29;
}

/// The Open Networking Foundation's id as an experimenter, and the types of its bundle messages.
const ONF: u32 = 0x4f4e_4600;
const BUNDLE_CONTROL: u32 = 2300;
const BUNDLE_ADD: u32 = 2301;
/// The only element of a HELLO.
const HELLO_VERSIONS: u16 = 1;

/// Appends a message.
///
/// # Errors
/// If it is longer than [`MESSAGE_BYTES_MAX`]; then nothing is appended.
pub fn encode(transaction: u32, message: &Message, out: &mut Vec<u8>) -> Result<(), TooLong> {
    let start = out.len();
    out.u8(if let Message::Hello(hello) = message { hello.version } else { VERSION });
    out.u8(message.kind());
    out.u16(0);
    out.u32(transaction);
    let inner = message.encode_body(transaction, out);
    let bytes = out.len() - start;
    let is_too_long = bytes > MESSAGE_BYTES_MAX || inner.is_err();
    if is_too_long {
        out.truncate(start);
        return Err(inner.err().unwrap_or(TooLong { bytes }));
    }
    out.set_length(start + 2, start);
    Ok(())
}

/// The size of the message that `received` begins with, from its header; `None`: the header is not
/// complete.
///
/// # Errors
/// If no message can begin so.
pub fn message_bytes(received: &[u8]) -> Result<Option<usize>, DecodeError> {
    let Some(header) = received.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    // A HELLO has the version of its sender, any other message the one that was agreed on.
    if header[0] != VERSION && header[1] != kind::HELLO && header[1] != kind::ERROR {
        return Err(DecodeError::Version(header[0]));
    }
    let bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if bytes < HEADER_BYTES { Err(DecodeError::Length("header")) } else { Ok(Some(bytes)) }
}

/// Decodes exactly one message: its transaction id and content.
pub fn decode(message: &[u8]) -> Result<(u32, Message), DecodeError> {
    let bytes = message_bytes(message)?.ok_or(DecodeError::Truncated("header"))?;
    if bytes != message.len() {
        return Err(DecodeError::Length("message"));
    }
    let mut reader = Reader::new("message", message);
    let (version, kind) = (reader.u8()?, reader.u8()?);
    reader.skip(2)?;
    let transaction = reader.u32()?;
    let message = Message::decode_body(version, kind, transaction, &mut reader)?;
    reader.end()?;
    Ok((transaction, message))
}

impl Message {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => kind::HELLO,
            Self::Error(_) => kind::ERROR,
            Self::EchoRequest(_) => kind::ECHO_REQUEST,
            Self::EchoReply(_) => kind::ECHO_REPLY,
            Self::FeaturesRequest => kind::FEATURES_REQUEST,
            Self::FeaturesReply(_) => kind::FEATURES_REPLY,
            Self::GetConfigRequest => kind::GET_CONFIG_REQUEST,
            Self::GetConfigReply(_) => kind::GET_CONFIG_REPLY,
            Self::SetConfig(_) => kind::SET_CONFIG,
            Self::PacketIn(_) => kind::PACKET_IN,
            Self::PortStatus { .. } => kind::PORT_STATUS,
            Self::PacketOut(_) => kind::PACKET_OUT,
            Self::FlowMod(_) => kind::FLOW_MOD,
            Self::GroupMod(_) => kind::GROUP_MOD,
            Self::MeterMod(_) => kind::METER_MOD,
            Self::MultipartRequest(_) => kind::MULTIPART_REQUEST,
            Self::MultipartReply(_) => kind::MULTIPART_REPLY,
            Self::BarrierRequest => kind::BARRIER_REQUEST,
            Self::BarrierReply => kind::BARRIER_REPLY,
            Self::RoleRequest(_) => kind::ROLE_REQUEST,
            Self::RoleReply(_) => kind::ROLE_REPLY,
            Self::Bundle(_) | Self::BundleAdd(_) => kind::EXPERIMENTER,
        }
    }

    fn encode_body(&self, transaction: u32, out: &mut Vec<u8>) -> Result<(), TooLong> {
        match self {
            Self::Hello(hello) => {
                if let Some(versions) = hello.versions {
                    out.u16(HELLO_VERSIONS);
                    out.u16(8);
                    out.u32(versions);
                }
            }
            Self::Error(error) => {
                out.u16(error.kind);
                out.u16(error.code);
                out.bytes(&error.data);
            }
            Self::EchoRequest(data) | Self::EchoReply(data) => out.bytes(data),
            Self::FeaturesRequest | Self::GetConfigRequest | Self::BarrierRequest | Self::BarrierReply => {}
            Self::FeaturesReply(features) => {
                out.u64(features.datapath);
                out.u32(features.buffers);
                out.u8(features.tables);
                out.u8(features.auxiliary);
                out.zeros(2);
                out.u32(features.capabilities);
                out.zeros(4);
            }
            Self::GetConfigReply(config) | Self::SetConfig(config) => {
                out.u16(config.fragments);
                out.u16(config.miss_length_max);
            }
            Self::PacketIn(packet) => {
                out.u32(packet.buffer.unwrap_or(NO_BUFFER));
                out.u16(packet.bytes);
                out.u8(packet.reason);
                out.u8(packet.table);
                out.u64(packet.cookie);
                packet.matches.encode(out);
                out.zeros(2);
                out.bytes(&packet.data);
            }
            Self::PortStatus { change, port } => {
                out.u8(*change as u8);
                out.zeros(7);
                port.encode(out);
            }
            Self::PacketOut(packet) => {
                out.u32(NO_BUFFER);
                out.u32(packet.in_port);
                let at = out.len();
                out.u16(0);
                out.zeros(6);
                let start = out.len();
                encode_actions(&packet.actions, out);
                out.set_length(at, start);
                out.bytes(&packet.data);
            }
            Self::FlowMod(flow) => flow.encode(out),
            Self::GroupMod(group) => group.encode(out),
            Self::MeterMod(meter) => meter.encode(out),
            Self::MultipartRequest(request) => request.encode(out),
            Self::MultipartReply(reply) => reply.encode(out),
            Self::RoleRequest(status) | Self::RoleReply(status) => {
                out.u32(status.role as u32);
                out.zeros(4);
                out.u64(status.generation);
            }
            Self::Bundle(control) => {
                out.u32(ONF);
                out.u32(BUNDLE_CONTROL);
                out.u32(control.bundle);
                out.u16(control.step as u16);
                out.u16(control.flags);
            }
            Self::BundleAdd(add) => {
                out.u32(ONF);
                out.u32(BUNDLE_ADD);
                out.u32(add.bundle);
                out.zeros(2);
                out.u16(add.flags);
                encode(transaction, &add.message, out)?;
            }
        }
        Ok(())
    }

    fn decode_body(
        version: u8,
        kind: u8,
        transaction: u32,
        reader: &mut Reader<'_>,
    ) -> Result<Self, DecodeError> {
        Ok(match kind {
            kind::HELLO => Self::Hello(decode_hello(version, reader)?),
            kind::ERROR => {
                let (kind, code) = (reader.u16()?, reader.u16()?);
                Self::Error(SwitchError { kind, code, data: reader.rest().into() })
            }
            kind::ECHO_REQUEST => Self::EchoRequest(reader.rest().into()),
            kind::ECHO_REPLY => Self::EchoReply(reader.rest().into()),
            kind::EXPERIMENTER => decode_bundle(transaction, reader)?,
            kind::FEATURES_REQUEST => Self::FeaturesRequest,
            kind::FEATURES_REPLY => Self::FeaturesReply(decode_features(reader)?),
            kind::GET_CONFIG_REQUEST => Self::GetConfigRequest,
            kind::GET_CONFIG_REPLY => Self::GetConfigReply(decode_config(reader)?),
            kind::SET_CONFIG => Self::SetConfig(decode_config(reader)?),
            kind::PACKET_IN => Self::PacketIn(decode_packet_in(reader)?),
            kind::PORT_STATUS => {
                let changes = [PortChange::Added, PortChange::Deleted, PortChange::Modified];
                let change = known("port change", reader.u8()?.into(), &changes)?;
                reader.skip(7)?;
                Self::PortStatus { change, port: Port::decode(reader)? }
            }
            kind::PACKET_OUT => Self::PacketOut(decode_packet_out(reader)?),
            kind::FLOW_MOD => Self::FlowMod(FlowMod::decode(reader)?),
            kind::GROUP_MOD => Self::GroupMod(GroupMod::decode(reader)?),
            kind::METER_MOD => Self::MeterMod(MeterMod::decode(reader)?),
            kind::MULTIPART_REQUEST => Self::MultipartRequest(MultipartRequest::decode(reader)?),
            kind::MULTIPART_REPLY => Self::MultipartReply(MultipartReply::decode(reader)?),
            kind::BARRIER_REQUEST => Self::BarrierRequest,
            kind::BARRIER_REPLY => Self::BarrierReply,
            kind::ROLE_REQUEST => Self::RoleRequest(decode_role(reader)?),
            kind::ROLE_REPLY => Self::RoleReply(decode_role(reader)?),
            value => return Err(DecodeError::Unknown { what: "message type", value: value.into() }),
        })
    }
}

/// Elements of an unknown type are skipped, as the specification demands.
fn decode_hello(version: u8, reader: &mut Reader<'_>) -> Result<Hello, DecodeError> {
    let mut versions = None;
    while !reader.is_empty() {
        let before = reader.remaining();
        let (kind, mut element) = reader.typed_part("HELLO element")?;
        if kind == HELLO_VERSIONS {
            if versions.is_some() {
                return Err(DecodeError::Repeated("HELLO element"));
            }
            versions = Some(element.u32()?);
        }
        reader.skip_padding_since(before)?;
    }
    Ok(Hello { version, versions })
}

fn decode_features(reader: &mut Reader<'_>) -> Result<Features, DecodeError> {
    let (datapath, buffers) = (reader.u64()?, reader.u32()?);
    let (tables, auxiliary) = (reader.u8()?, reader.u8()?);
    reader.skip(2)?;
    let capabilities = reader.u32()?;
    reader.skip(4)?;
    Ok(Features { datapath, buffers, tables, auxiliary, capabilities })
}

fn decode_config(reader: &mut Reader<'_>) -> Result<Config, DecodeError> {
    Ok(Config { fragments: reader.u16()?, miss_length_max: reader.u16()? })
}

fn decode_packet_in(reader: &mut Reader<'_>) -> Result<PacketIn, DecodeError> {
    let buffer = Some(reader.u32()?).filter(|buffer| *buffer != NO_BUFFER);
    let (bytes, reason, table, cookie) = (reader.u16()?, reader.u8()?, reader.u8()?, reader.u64()?);
    let matches = Match::decode(reader)?;
    reader.skip(2)?;
    Ok(PacketIn { buffer, bytes, reason, table, cookie, matches, data: reader.rest().into() })
}

fn decode_packet_out(reader: &mut Reader<'_>) -> Result<PacketOut, DecodeError> {
    let (buffer, in_port, bytes) = (reader.u32()?, reader.u32()?, reader.u16()?);
    if buffer != NO_BUFFER {
        return Err(DecodeError::Unknown { what: "packet buffer", value: buffer.into() });
    }
    reader.skip(6)?;
    let actions = decode_actions(&mut reader.part("actions", bytes.into())?)?;
    Ok(PacketOut { in_port, actions, data: reader.rest().into() })
}

fn decode_role(reader: &mut Reader<'_>) -> Result<RoleStatus, DecodeError> {
    let roles = [Role::Keep, Role::Equal, Role::Primary, Role::Secondary];
    let role = known("role", reader.u32()?, &roles)?;
    reader.skip(4)?;
    Ok(RoleStatus { role, generation: reader.u64()? })
}

fn decode_bundle(transaction: u32, reader: &mut Reader<'_>) -> Result<Message, DecodeError> {
    let (experimenter, kind, bundle) = (reader.u32()?, reader.u32()?, reader.u32()?);
    match (experimenter, kind) {
        (ONF, BUNDLE_CONTROL) => {
            let step = known("bundle step", reader.u16()?.into(), &BundleStep::ALL)?;
            Ok(Message::Bundle(BundleControl { bundle, step, flags: reader.u16()? }))
        }
        (ONF, BUNDLE_ADD) => {
            reader.skip(2)?;
            let flags = reader.u16()?;
            let bytes = reader.rest();
            // Bundles do not nest, so the depth of this recursion is one.
            if bytes.get(1) == Some(&kind::EXPERIMENTER) {
                return Err(DecodeError::Unknown { what: "message in a bundle", value: 4 });
            }
            let (inner, message) = decode(bytes)?;
            if inner != transaction {
                return Err(DecodeError::Unknown { what: "transaction in a bundle", value: inner.into() });
            }
            Ok(Message::BundleAdd(BundleAdd { bundle, flags, message: Box::new(message) }))
        }
        _ => Err(DecodeError::Unknown { what: "experimenter message", value: kind.into() }),
    }
}
