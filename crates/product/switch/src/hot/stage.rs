//! The stage of hot keys, behind the match-action stage: what becomes of requests that leave for hosts of this switch, and of what is said to it.
//!
//! Requests are looked at that have room for a stamp, or are of a keyspace whose hot keys are spread; all else costs two comparisons. What leaves by a trunk stays as it is,
//! and is counted and stamped by the last switch before its receiver, which alone sees all of what a key's owner gets.

use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use core::net::SocketAddrV4;

use nicekv_hotkeys::HotKey;
use nicekv_proto::hot::Stamp;
use nicekv_proto::route::ROOM_AT;
use nicekv_proto::{HeaderLayout, KeyDigest, KeyspaceId, Opcode, ROOM_STAMP};

use super::detection::Detection;
use super::values::{Asked, Offered, Pulse};
use super::{HotTable, Key, Turn};
use crate::stages::admit::{OPCODES_SAID, holds};
use crate::{Counter, Counters, Hop, HostId, HostIndex, HotReading, Route, Sought};

/// Table and counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct HotStage {
    pub(crate) table: HotTable,
    pub(crate) detection: Detection,
    /// Nodes at this switch, ascending.
    nodes: Vec<HostId>,
}

/// What of a request is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) sought: Sought,
    /// For a stamp.
    pub(crate) has_room: bool,
    /// Who sends it.
    pub(crate) from: SocketAddrV4,
    /// The whole of it, if the switch may answer it.
    pub(crate) payload: Option<&'a [u8]>,
    /// What the switch's boot-time clock says.
    pub(crate) now_ns: u64,
}

/// A request that leaves for hosts of this switch. `counts`: its keyspace spreads its hot keys.
#[derive(Clone, Copy, Debug)]
struct Passing {
    key: HotKey,
    is_update: bool,
    has_room: bool,
    counts: bool,
}

/// What is said to the switch ends here, or comes back as this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Nothing,
    Answer(Answer),
}

/// It goes back as this, with these words in front of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    opcode: Opcode,
    words: [u64; 2],
}

/// Whether it may have room for a stamp.
pub(crate) fn has_room_for_stamp(payload: &[u8]) -> bool {
    payload.get(ROOM_AT) == Some(&ROOM_STAMP)
}

/// Whether it is said to the switch.
pub(crate) fn is_said(payload: &[u8]) -> bool {
    payload.get(offset_of!(HeaderLayout, opcode)).is_some_and(|opcode| holds(OPCODES_SAID, *opcode))
}

impl Answer {
    /// Turns what was said, and is heard, into this.
    pub(crate) fn write(self, payload: &mut [u8]) {
        payload[offset_of!(HeaderLayout, opcode)] = self.opcode as u8;
        let body = &mut payload[size_of::<HeaderLayout>()..];
        body.chunks_exact_mut(8)
            .zip(self.words)
            .for_each(|(to, word)| to.copy_from_slice(&word.to_be_bytes()));
    }
}

impl HotStage {
    /// Other tables are in force: who is a node here from now on.
    pub(crate) fn set_hosts(&mut self, hosts: &HostIndex, ids: impl Iterator<Item = HostId>) {
        self.nodes = ids.filter(|id| super::is_here(hosts, *id)).collect();
        self.nodes.sort_unstable();
    }

    /// Steers a request that leaves by `route`, or answers it; the stamp that is to be written into its room, if it has some, for hosts of this switch.
    pub(crate) fn pass<'a>(
        &'a mut self,
        request: Request<'_>,
        route: Route<'a>,
        counters: &mut Counters,
    ) -> (Route<'a>, Option<Stamp>) {
        let Sought { key, opcode, .. } = request.sought;
        let Some((keyspace, value)) = key else { return (route, None) };
        let counts = self.detection.has(keyspace);
        let is_request = [Opcode::Get, Opcode::Update].iter().any(|it| opcode == Some(*it as u8));
        if !is_request || !(request.has_room || counts) {
            return (route, None);
        }
        let key = HotKey { keyspace: KeyspaceId(keyspace), digest: KeyDigest(value.to_be_bytes()) };
        let is_update = opcode == Some(Opcode::Update as u8);
        let passing = Passing { key, is_update, has_room: request.has_room, counts };
        let leaves_here =
            matches!(route, Route::Unicast(Some(Hop::Host(_))) | Route::Chain(Some(Hop::Host(_)), _));
        let place = (keyspace, key.digest.0);
        if leaves_here && self.answers(&place, &request) {
            counters.add(Counter::HotAnswered, 1);
            let reply = self.table.answer(&place).expect("there is a value");
            return (Route::Answered(reply), None);
        }
        let (route, stamp) = match route {
            Route::Multicast(copies) => {
                let hosts = || copies.clone().filter_map(Hop::host);
                if hosts().next().is_none() {
                    return (Route::Multicast(copies), None);
                }
                hosts().filter(|_| counts).for_each(|host| self.detection.load(host));
                let (_, stamp) = self.look_up(passing);
                (Route::Multicast(copies), stamp)
            }
            Route::Unicast(Some(Hop::Host(usual))) => {
                let (to, stamp) = self.steer(passing, usual, counters);
                (Route::Unicast(Some(Hop::Host(to))), stamp)
            }
            Route::Chain(Some(Hop::Host(usual)), header) => {
                let (to, stamp) = self.steer(passing, usual, counters);
                (Route::Chain(Some(Hop::Host(to)), header), stamp)
            }
            elsewhere => return (elsewhere, None),
        };
        (route, request.has_room.then_some(stamp))
    }

    /// Whether the switch itself answers (H9).
    fn answers(&self, place: &Key, request: &Request<'_>) -> bool {
        let asked = request.payload.filter(|_| request.has_room && self.table.has_value_of(place));
        asked
            .and_then(|payload| Asked::of(payload, request.from))
            .is_some_and(|asked| self.table.answers(place, asked, request.now_ns))
    }

    /// Of what has one receiver: `usual`, unless a holder gets it; and its stamp.
    fn steer(&mut self, passing: Passing, usual: HostId, counters: &mut Counters) -> (HostId, Stamp) {
        let (holder, stamp) = self.look_up(passing);
        counters.add(Counter::HotRedirected, u64::from(holder.is_some()));
        let to = holder.unwrap_or(usual);
        if passing.counts {
            self.detection.load(to);
        }
        (to, stamp)
    }

    /// The holder that gets it, and its stamp.
    fn look_up(&mut self, Passing { key, is_update, has_room, counts }: Passing) -> (Option<HostId>, Stamp) {
        let place = (key.keyspace.0, key.digest.0);
        let nodes = &self.nodes;
        let is_here = |holder: HostId| nodes.binary_search(&holder).is_ok();
        let found = match is_update {
            true => self.table.pass_update(&place).map(|stamp| (None, stamp)),
            false => self.table.pass_get(&place, has_room, is_here).map(|turn| match turn {
                Turn::Usual => (None, Stamp::NONE),
                Turn::Holder(holder, stamp) => (Some(holder), stamp),
            }),
        };
        if found.is_none() && counts {
            self.detection.count(key);
        }
        found.unwrap_or((None, Stamp::NONE))
    }

    /// What is said to the switch. `sender`: the node that says it, which hangs here.
    pub(crate) fn hear(
        &mut self,
        sender: Option<HostId>,
        payload: &[u8],
        now_ns: u64,
        counters: &mut Counters,
    ) -> Heard {
        let heard = sender.zip(Said::of(payload)).and_then(|(sender, (place, said))| match said {
            Said::Confirm(told) => {
                let heard = self.table.confirm(&place, sender, told);
                heard.then_some((Counter::HotConfirmed, Heard::Nothing))
            }
            Said::Close(told) => {
                let Stamp { instance, seen } = self.table.close(&place, told)?;
                let answer = Answer { opcode: Opcode::HotClosed, words: [instance, seen] };
                Some((Counter::HotClosed, Heard::Answer(answer)))
            }
            Said::Value(offered) => {
                let kept = self.table.keep(&place, sender, offered);
                kept.then_some((Counter::HotKept, Heard::Nothing))
            }
            Said::Lease(pulse) => {
                let life = self.table.lease(sender, pulse)?;
                let answer = Answer { opcode: Opcode::HotLeased, words: [life, now_ns] };
                Some((Counter::HotLeased, Heard::Answer(answer)))
            }
        });
        let (counter, heard) = heard.unwrap_or((Counter::HotUnheard, Heard::Nothing));
        counters.add(counter, 1);
        heard
    }

    /// What the controller reads.
    pub(crate) fn read(&mut self) -> HotReading {
        let entries = self.table.counts();
        let reading = HotReading { newest: self.table.newest(), entries, ..HotReading::default() };
        self.detection.read(reading, &self.nodes)
    }
}

/// What is said to a switch, of a datagram that nobody has decoded.
#[derive(Clone, Copy, Debug)]
enum Said<'a> {
    Confirm(Stamp),
    Close(Stamp),
    Value(Offered<'a>),
    Lease(Pulse),
}

impl<'a> Said<'a> {
    /// And of which key. Nothing is behind it, and there is no room.
    fn of(payload: &'a [u8]) -> Option<(Key, Self)> {
        let header = HeaderLayout::peek(payload).filter(|header| header.room == 0)?;
        let body = &payload[size_of::<HeaderLayout>()..];
        let said = match header.opcode()? {
            Opcode::HotConfirm => Self::Confirm(stamp(body)?),
            Opcode::HotClose => Self::Close(stamp(body)?),
            Opcode::HotValue => Self::Value(Offered::of(body)?),
            Opcode::HotLease => Self::Lease(Pulse::of(body)?),
            _ => return None,
        };
        Some(((header.keyspace.get(), header.digest), said))
    }
}

fn stamp(body: &[u8]) -> Option<Stamp> {
    let body: &[u8; Stamp::BYTES] = body.try_into().ok()?;
    let word = |at: usize| u64::from_be_bytes(*body[at..].first_chunk().expect("two words"));
    Some(Stamp { instance: word(0), seen: word(8) })
}
