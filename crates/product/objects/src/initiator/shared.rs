//! State that all jobs of an initiator share: map, messages, events, and the turn on its link.

use super::interface::{
    Counted, Event, GetError, Handle, InitiatorConfig, InitiatorCounters, Placed, PutError,
};
use crate::map::{Group, Map};
use crate::random::Random;
use crate::transmit::{Destination, Transmit};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use nicekv_proto::OpId;
use nicekv_proto::chunk::{ChunkAnswer, ChunkId, ChunkRequest, MapVersion, Wanted};
use nicekv_proto::placement::GROUP_MASK_ALL;

/// State that all jobs share.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) config: InitiatorConfig,
    pub(super) map: Option<Arc<Map>>,
    /// The job of each op id, including op ids of earlier attempts.
    pub(super) ops: BTreeMap<OpId, Handle>,
    pub(super) sends: VecDeque<Transmit>,
    pub(super) events: VecDeque<Event>,
    pub(super) ended: Vec<Handle>,
    pub(super) counters: InitiatorCounters,
    sequence: u64,
    pub(super) random: Random,
    turn: Option<Turn>,
}

/// The put that may use the initiator's own link now. Only one put at a time negotiates and sends
/// its frames; the next one begins when these have been sent.
#[derive(Clone, Copy, Debug)]
struct Turn {
    handle: Handle,
    /// When the turn ends at the latest.
    until_ns: u64,
}

impl Shared {
    pub(super) fn new(config: InitiatorConfig, seed: u64) -> Self {
        Self {
            config,
            map: None,
            ops: BTreeMap::new(),
            sends: VecDeque::new(),
            events: VecDeque::new(),
            ended: Vec::new(),
            counters: InitiatorCounters::default(),
            sequence: 0,
            random: Random::new(seed),
            turn: None,
        }
    }

    pub(super) fn version(&self) -> MapVersion {
        self.map.as_ref().map(|map| map.version()).unwrap_or_default()
    }

    pub(super) fn group_of(&self, id: &ChunkId) -> Option<(u8, Group)> {
        let map = self.map.as_ref()?;
        let (number, group) = map.group_of(id);
        Some((number, *group))
    }

    /// When this put may negotiate.
    pub(super) fn turn_ns(&self, handle: Handle) -> u64 {
        self.turn.filter(|turn| turn.handle != handle).map_or(0, |turn| turn.until_ns)
    }

    /// Gives a put the turn.
    pub(super) fn take_turn(&mut self, handle: Handle, until_ns: u64) {
        self.turn = Some(Turn { handle, until_ns });
    }

    /// Ends the turn of this put, if it has the turn.
    pub(super) fn end_turn(&mut self, handle: Handle) {
        self.turn = self.turn.filter(|turn| turn.handle != handle);
    }

    /// Sends a request to a chunk's group; returns its op id.
    pub(super) fn request(&mut self, handle: Handle, id: ChunkId, wanted: Wanted) -> OpId {
        self.sequence += 1;
        let op = OpId { client: self.config.client, sequence: self.sequence };
        self.ops.insert(op, handle);
        let Some((group, _)) = self.group_of(&id) else { return op };
        self.request_of((group, GROUP_MASK_ALL), op, id, wanted);
        op
    }

    /// Sends the request to further targets.
    pub(super) fn request_of(&mut self, to: (u8, u16), op: OpId, id: ChunkId, wanted: Wanted) {
        self.counters.requests += 1;
        let request = ChunkRequest { op, reply_to: None, version: self.version(), id, wanted };
        self.send_to(to, |out| request.encode(out));
    }

    /// Sends to members of a chunk's group.
    pub(super) fn send(&mut self, id: &ChunkId, mask: u16, encode: impl FnOnce(&mut Vec<u8>)) {
        let Some((group, _)) = self.group_of(id) else { return };
        self.send_to((group, mask), encode);
    }

    /// Sends to members of any group.
    pub(super) fn send_to(&mut self, (group, mask): (u8, u16), encode: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        self.sends.push_back(Transmit { to: Destination::Group { group, mask }, bytes });
    }

    /// Checks an answer: the target must be at its place in the map. An answer by another map does
    /// not count (P2); a newer map is reported.
    pub(super) fn check(&mut self, answer: &ChunkAnswer) -> Option<ChunkAnswer> {
        let known = self.version();
        if answer.version > known && self.events.iter().all(|event| !matches!(event, Event::NewerMap(_))) {
            self.events.push_back(Event::NewerMap(answer.version));
        }
        let place = self.map.as_ref().and_then(|map| map.place_of(answer.node));
        if place.is_none_or(|(_, place)| place != answer.place) {
            self.counters.unexpected += 1;
            return None;
        }
        (answer.version == known).then_some(*answer)
    }

    /// Whether the sender is a member of the chunk's group, not a former one.
    pub(super) fn is_of_member(&self, answer: &ChunkAnswer) -> bool {
        self.group_of(&answer.id).is_some_and(|(_, group)| group.at(answer.place) == Some(answer.node))
    }

    pub(super) fn end_put(&mut self, handle: Handle, result: Result<Placed, PutError>) {
        match &result {
            Ok(_) => self.counters.puts += 1,
            Err(_) => self.counters.puts_failed += 1,
        }
        self.end_turn(handle);
        self.ended.push(handle);
        self.events.push_back(Event::Put(handle, result));
    }

    pub(super) fn end_get(&mut self, handle: Handle, result: Result<Arc<[u8]>, GetError>) {
        match &result {
            Ok(_) => self.counters.gets += 1,
            Err(_) => self.counters.gets_failed += 1,
        }
        self.ended.push(handle);
        self.events.push_back(Event::Got(handle, result));
    }

    pub(super) fn end_count(&mut self, handle: Handle, counted: Counted) {
        self.ended.push(handle);
        self.events.push_back(Event::Counted(handle, counted));
    }

    /// Pause before the next attempt: exponential, with jitter.
    pub(super) fn pause_ns(&mut self, attempts: u32) -> u64 {
        let timing = self.config.timing;
        let pause_ns = (timing.again_ns_min << attempts.min(16)).min(timing.again_ns_max);
        pause_ns / 2 + self.random.bits() % pause_ns.max(1)
    }
}
