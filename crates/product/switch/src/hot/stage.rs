//! The stage of hot keys, after the match-action stage: redirects requests that leave for hosts of
//! this switch, and handles messages to the switch itself.
//!
//! It looks at requests that have room for a stamp or belong to a keyspace that spreads its hot
//! keys; all others cost two comparisons. A request that leaves by a trunk stays unchanged. The
//! last switch before its receiver counts and stamps it, because only that switch sees all requests
//! that the key's owner receives.

use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use core::net::SocketAddrV4;

use nicekv_hotkeys::HotKey;
use nicekv_proto::hot::Stamp;
use nicekv_proto::route::ROOM_AT;
use nicekv_proto::{HeaderLayout, KeyDigest, KeyspaceId, Opcode, ROOM_STAMP};

use super::detection::Detection;
use super::values::{GetRequest, LeaseRenewal, OfferedValue};
use super::{HotTable, Key, Turn};
use crate::admission::{OPCODES_SWITCH, holds};
use crate::{Counter, Counters, Hop, HostId, HostIndex, HotReading, LookupKey, Route};

/// The table, and the detection of hot keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct HotStage {
    pub(crate) table: HotTable,
    pub(crate) detection: Detection,
    /// Nodes attached to this switch, ascending.
    nodes: Vec<HostId>,
}

/// The fields of a request that the stage needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) key: LookupKey,
    /// Whether the request has room for a stamp.
    pub(crate) has_room: bool,
    /// The sender.
    pub(crate) from: SocketAddrV4,
    /// The whole request, if the switch may answer it.
    pub(crate) payload: Option<&'a [u8]>,
    /// The switch's boot-time clock, read after the request arrived.
    pub(crate) now_ns: u64,
}

/// A request that leaves for hosts of this switch. `is_counted`: the request's keyspace spreads its
/// hot keys.
#[derive(Clone, Copy, Debug)]
struct Passing {
    key: HotKey,
    is_update: bool,
    has_room: bool,
    is_counted: bool,
}

/// The reply to a message to the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwitchReply {
    None,
    Reply(Reply),
}

/// A reply: the message itself, sent back with this opcode and with these words at the start of its
/// body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    opcode: Opcode,
    words: [u64; 2],
}

/// Whether a datagram claims to have room for a stamp.
pub(crate) fn has_room_for_stamp(payload: &[u8]) -> bool {
    payload.get(ROOM_AT) == Some(&ROOM_STAMP)
}

/// Whether a datagram is a message to the switch itself.
pub(crate) fn is_switch_message(payload: &[u8]) -> bool {
    payload.get(offset_of!(HeaderLayout, opcode)).is_some_and(|opcode| holds(OPCODES_SWITCH, *opcode))
}

impl Reply {
    /// Overwrites the message in `payload` with the reply.
    pub(crate) fn write(self, payload: &mut [u8]) {
        payload[offset_of!(HeaderLayout, opcode)] = self.opcode as u8;
        let body = &mut payload[size_of::<HeaderLayout>()..];
        body.chunks_exact_mut(8)
            .zip(self.words)
            .for_each(|(to, word)| to.copy_from_slice(&word.to_be_bytes()));
    }
}

impl HotStage {
    /// Sets the hosts after a new generation of the other tables was installed.
    pub(crate) fn set_hosts(&mut self, hosts: &HostIndex, ids: impl Iterator<Item = HostId>) {
        self.nodes = ids.filter(|id| super::is_here(hosts, *id)).collect();
        self.nodes.sort_unstable();
    }

    /// Redirects a request that would leave by `route`, or answers it. Also returns the stamp to
    /// write into the copies of the request for hosts of this switch, if the request has room for
    /// one.
    pub(crate) fn pass<'a>(
        &'a mut self,
        request: Request<'_>,
        route: Route<'a>,
        counters: &mut Counters,
    ) -> (Route<'a>, Option<Stamp>) {
        let LookupKey { key, opcode, .. } = request.key;
        let Some((keyspace, value)) = key else { return (route, None) };
        let is_counted = self.detection.has(keyspace);
        let is_request = [Opcode::Get, Opcode::Update].iter().any(|it| opcode == Some(*it as u8));
        if !is_request || !(request.has_room || is_counted) {
            return (route, None);
        }
        let key = HotKey { keyspace: KeyspaceId(keyspace), digest: KeyDigest(value.to_be_bytes()) };
        let is_update = opcode == Some(Opcode::Update as u8);
        let passing = Passing { key, is_update, has_room: request.has_room, is_counted };
        let leaves_here =
            matches!(route, Route::Unicast(Some(Hop::Host(_))) | Route::Chain(Some(Hop::Host(_)), _));
        let entry_key = (keyspace, key.digest.0);
        if leaves_here && self.can_answer(&entry_key, &request) {
            counters.add(Counter::HotAnswered, 1);
            let reply = self.table.answer(&entry_key).expect("can_answer found a value");
            return (Route::Answered(reply), None);
        }
        let (route, stamp) = match route {
            Route::Multicast(copies) => {
                let hosts = || copies.clone().filter_map(Hop::host);
                if hosts().next().is_none() {
                    return (Route::Multicast(copies), None);
                }
                hosts().filter(|_| is_counted).for_each(|host| self.detection.load(host));
                let (_, stamp) = self.look_up(passing);
                (Route::Multicast(copies), stamp)
            }
            Route::Unicast(Some(Hop::Host(owner))) => {
                let (to, stamp) = self.steer(passing, owner, counters);
                (Route::Unicast(Some(Hop::Host(to))), stamp)
            }
            Route::Chain(Some(Hop::Host(owner)), header) => {
                let (to, stamp) = self.steer(passing, owner, counters);
                (Route::Chain(Some(Hop::Host(to)), header), stamp)
            }
            elsewhere => return (elsewhere, None),
        };
        (route, request.has_room.then_some(stamp))
    }

    /// Whether the switch can answer the request from a stored value (H9).
    fn can_answer(&self, key: &Key, request: &Request<'_>) -> bool {
        let payload = request.payload.filter(|_| request.has_room && self.table.has_value_of(key));
        payload
            .and_then(|payload| GetRequest::parse(payload, request.from))
            .is_some_and(|get| self.table.can_answer(key, get, request.now_ns))
    }

    /// The receiver of a unicast and its stamp: `owner` or a holder.
    fn steer(&mut self, passing: Passing, owner: HostId, counters: &mut Counters) -> (HostId, Stamp) {
        let (holder, stamp) = self.look_up(passing);
        counters.add(Counter::HotRedirected, u64::from(holder.is_some()));
        let to = holder.unwrap_or(owner);
        if passing.is_counted {
            self.detection.load(to);
        }
        (to, stamp)
    }

    /// Looks the key up. Returns the holder to which the request is redirected, if any, and the
    /// stamp.
    fn look_up(
        &mut self,
        Passing { key, is_update, has_room, is_counted }: Passing,
    ) -> (Option<HostId>, Stamp) {
        let entry_key = (key.keyspace.0, key.digest.0);
        let nodes = &self.nodes;
        let is_here = |holder: HostId| nodes.binary_search(&holder).is_ok();
        let found = match is_update {
            true => self.table.pass_update(&entry_key).map(|stamp| (None, stamp)),
            false => self.table.pass_get(&entry_key, has_room, is_here).map(|turn| match turn {
                Turn::Owner => (None, Stamp::NONE),
                Turn::Holder(holder, stamp) => (Some(holder), stamp),
            }),
        };
        if found.is_none() && is_counted {
            self.detection.count(key);
        }
        found.unwrap_or((None, Stamp::NONE))
    }

    /// Handles a message to the switch. `sender`: the node that sent it, which is attached to this
    /// switch.
    pub(crate) fn handle_switch_message(
        &mut self,
        sender: Option<HostId>,
        payload: &[u8],
        now_ns: u64,
        counters: &mut Counters,
    ) -> SwitchReply {
        let message = sender.zip(SwitchMessage::parse(payload));
        let accepted = message.and_then(|(sender, (key, message))| match message {
            SwitchMessage::Confirm(stamp) => {
                let is_accepted = self.table.confirm(&key, sender, stamp);
                is_accepted.then_some((Counter::HotConfirmed, SwitchReply::None))
            }
            SwitchMessage::Close(label) => {
                let Stamp { instance, seen } = self.table.close(&key, label)?;
                let reply = Reply { opcode: Opcode::HotClosed, words: [instance, seen] };
                Some((Counter::HotClosed, SwitchReply::Reply(reply)))
            }
            SwitchMessage::Value(offered) => {
                let is_stored = self.table.store(&key, sender, offered);
                is_stored.then_some((Counter::HotKept, SwitchReply::None))
            }
            SwitchMessage::Lease(renewal) => {
                let incarnation = self.table.lease(sender, renewal)?;
                let reply = Reply { opcode: Opcode::HotLeased, words: [incarnation, now_ns] };
                Some((Counter::HotLeased, SwitchReply::Reply(reply)))
            }
        });
        let (counter, reply) = accepted.unwrap_or((Counter::HotUnheard, SwitchReply::None));
        counters.add(counter, 1);
        reply
    }

    /// The counts for the controller.
    pub(crate) fn read(&mut self) -> HotReading {
        let entries = self.table.counts();
        let reading = HotReading { newest: self.table.newest(), entries, ..HotReading::default() };
        self.detection.read(reading, &self.nodes)
    }
}

/// A message from a node to the switch.
#[derive(Clone, Copy, Debug)]
enum SwitchMessage<'a> {
    Confirm(Stamp),
    Close(Stamp),
    Value(OfferedValue<'a>),
    Lease(LeaseRenewal),
}

impl<'a> SwitchMessage<'a> {
    /// Parses a message and its key. `None`: the message is malformed, or has trailing bytes or
    /// room for a stamp.
    fn parse(payload: &'a [u8]) -> Option<(Key, Self)> {
        let header = HeaderLayout::peek(payload).filter(|header| header.room == 0)?;
        let body = &payload[size_of::<HeaderLayout>()..];
        let message = match header.opcode()? {
            Opcode::HotConfirm => Self::Confirm(stamp(body)?),
            Opcode::HotClose => Self::Close(stamp(body)?),
            Opcode::HotValue => Self::Value(OfferedValue::parse(body)?),
            Opcode::HotLease => Self::Lease(LeaseRenewal::parse(body)?),
            _ => return None,
        };
        Some(((header.keyspace.get(), header.digest), message))
    }
}

fn stamp(body: &[u8]) -> Option<Stamp> {
    let body: &[u8; Stamp::BYTES] = body.try_into().ok()?;
    let word = |at: usize| u64::from_be_bytes(*body[at..].first_chunk().expect("two words"));
    Some(Stamp { instance: word(0), seen: word(8) })
}
