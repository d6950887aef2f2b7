//! The stage of hot keys, behind the match-action stage: what becomes of requests that leave for hosts of this switch, and of what is said to it.
//!
//! Requests are looked at that have room for a stamp, or are of a keyspace whose hot keys are spread; all else costs two comparisons. What leaves by a trunk stays as it is,
//! and is counted and stamped by the last switch before its receiver, which alone sees all of what a key's owner gets.

use alloc::vec::Vec;
use core::mem::{offset_of, size_of};

use nicekv_hotkeys::HotKey;
use nicekv_wire::hot::Stamp;
use nicekv_wire::route::ROOM_AT;
use nicekv_wire::{HeaderLayout, KeyDigest, KeyspaceId, Opcode, ROOM_STAMP};

use super::detection::Detection;
use super::{HotTable, Turn};
use crate::{Counter, Counters, Hop, HostId, HostIndex, HotReading, Route};

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
pub(crate) struct Request {
    /// Keyspace and match value of its header.
    pub(crate) key: Option<(u16, u128)>,
    pub(crate) opcode: Option<u8>,
    /// For a stamp.
    pub(crate) has_room: bool,
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
    Answer(Stamp),
}

/// Whether it may have room for a stamp.
pub(crate) fn has_room_for_stamp(payload: &[u8]) -> bool {
    payload.get(ROOM_AT) == Some(&ROOM_STAMP)
}

/// Whether it is said to the switch.
pub(crate) fn is_said(payload: &[u8]) -> bool {
    const SAID: [u8; 2] = [Opcode::HotConfirm as u8, Opcode::HotClose as u8];
    payload.get(offset_of!(HeaderLayout, opcode)).is_some_and(|opcode| SAID.contains(opcode))
}

/// Turns a `HotClose` into its answer.
pub(crate) fn answer(payload: &mut [u8], stamp: Stamp) {
    payload[offset_of!(HeaderLayout, opcode)] = Opcode::HotClosed as u8;
    payload[size_of::<HeaderLayout>()..].copy_from_slice(&stamp.to_bytes());
}

impl HotStage {
    /// Other tables are in force: who is a node here from now on.
    pub(crate) fn set_hosts(&mut self, hosts: &HostIndex, ids: impl Iterator<Item = HostId>) {
        self.nodes = ids.filter(|id| super::is_here(hosts, *id)).collect();
        self.nodes.sort_unstable();
    }

    /// Steers a request that leaves by `route`; the stamp that is to be written into its room, if it has some, for hosts of this switch.
    pub(crate) fn pass<'a>(
        &mut self,
        request: Request,
        route: Route<'a>,
        counters: &mut Counters,
    ) -> (Route<'a>, Option<Stamp>) {
        let Some((keyspace, value)) = request.key else { return (route, None) };
        let counts = self.detection.has(keyspace);
        let is_request = [Opcode::Get, Opcode::Update].iter().any(|it| request.opcode == Some(*it as u8));
        if !is_request || !(request.has_room || counts) {
            return (route, None);
        }
        let key = HotKey { keyspace: KeyspaceId(keyspace), digest: KeyDigest(value.to_be_bytes()) };
        let is_update = request.opcode == Some(Opcode::Update as u8);
        let passing = Passing { key, is_update, has_room: request.has_room, counts };
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
    pub(crate) fn hear(&mut self, sender: Option<HostId>, payload: &[u8], counters: &mut Counters) -> Heard {
        let heard = sender.zip(said(payload)).and_then(|(sender, (header, told))| {
            let place = (header.keyspace.get(), header.digest);
            if header.opcode == Opcode::HotConfirm as u8 {
                let heard = self.table.confirm(&place, sender, told);
                return heard.then_some((Counter::HotConfirmed, Heard::Nothing));
            }
            let stamp = self.table.close(&place, told.instance)?;
            Some((Counter::HotClosed, Heard::Answer(stamp)))
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

/// What is said to a switch, of a datagram that nobody has decoded: nothing is behind it, and there is no room.
fn said(payload: &[u8]) -> Option<(&HeaderLayout, Stamp)> {
    let header = HeaderLayout::peek(payload).filter(|header| header.room == 0)?;
    let body: &[u8; Stamp::BYTES] = payload.get(size_of::<HeaderLayout>()..)?.try_into().ok()?;
    let word = |at: usize| u64::from_be_bytes(*body[at..].first_chunk().expect("two words"));
    Some((header, Stamp { instance: word(0), seen: word(8) }))
}
