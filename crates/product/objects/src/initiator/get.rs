//! A get: from a member of the chunk's group or, while its slot moves, from a former member.
//!
//! ```text
//!   members asked ──one holds it──▶ read ──id matches──▶ got
//!        │ none delivers it           ▲
//!        └─ the slot moves: former members asked, at their present places
//!                    │ all answer that they do not hold it: not found      │ else: start over later
//! ```

use super::frame_requests::FrameRequests;
use super::interface::{GetError, Handle};
use super::shared::Shared;
use crate::chunk_id;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use nicekv_proto::chunk::{Answer, ChunkAnswer, ChunkId, ChunkRead, Wanted, frame_of, frames_of};
use nicekv_proto::large::Chunk;
use nicekv_proto::{NodeId, OpId};

/// A target that was asked.
#[derive(Clone, Copy, Debug)]
struct Asked {
    node: NodeId,
    /// The target's group, and its place there. A former member is in another group than the
    /// chunk's.
    place: (u8, u8),
    has_answered: bool,
    lacks_it: bool,
}

/// A target that holds the chunk.
#[derive(Clone, Copy, Debug)]
struct Holder {
    place: (u8, u8),
    bytes: u32,
    token: u64,
    wait_ns: u64,
}

/// The read of the chunk from one holder.
#[derive(Clone, Debug)]
struct Reading {
    from: Holder,
    frames: FrameRequests,
    bytes: Vec<u8>,
}

/// A running get.
#[derive(Clone, Debug)]
pub(super) struct Get {
    handle: Handle,
    id: ChunkId,
    /// Op id of the current attempt, and the targets that were asked in it.
    op: OpId,
    asked: Vec<Asked>,
    /// Whether former members were asked, if there are any.
    is_former_asked: bool,
    /// Holders that were not tried yet.
    holders: Vec<Holder>,
    reading: Option<Reading>,
    attempts: u32,
    /// When to choose a holder, or to start over, if no more answers arrive.
    until_ns: u64,
    is_waiting: bool,
    deadline_ns: u64,
}

impl Get {
    pub(super) fn new(now_ns: u64, handle: Handle, id: ChunkId, shared: &mut Shared) -> Self {
        let mut get = Self {
            handle,
            id,
            op: OpId::NONE,
            asked: Vec::new(),
            is_former_asked: false,
            holders: Vec::new(),
            reading: None,
            attempts: 0,
            until_ns: u64::MAX,
            is_waiting: false,
            deadline_ns: now_ns.saturating_add(shared.config.timing.deadline_ns),
        };
        get.begin_anew(now_ns, shared);
        get
    }

    /// Starts over with the current map: asks the chunk's group.
    pub(super) fn begin_anew(&mut self, now_ns: u64, shared: &mut Shared) {
        let Some((number, group)) = shared.group_of(&self.id) else { return };
        let asked =
            |(place, node)| Asked { node, place: (number, place), has_answered: false, lacks_it: false };
        self.asked = group.members().map(asked).collect();
        (self.is_former_asked, self.is_waiting) = (false, false);
        self.holders.clear();
        self.reading = None;
        self.op = shared.request(self.handle, self.id, Wanted::Get);
        self.until_ns = now_ns.saturating_add(shared.config.timing.answers_ns);
    }

    /// While the slot moves, asks former members of the group (P13). Returns whether there are any.
    fn ask_former(&mut self, now_ns: u64, shared: &mut Shared) -> bool {
        self.is_former_asked = true;
        let Some(map) = shared.map.clone() else { return false };
        let former: Vec<(u8, u8)> = map.former(&self.id).collect();
        for (group, place) in &former {
            let Some(node) = map.group(*group).and_then(|members| members.at(*place)) else { continue };
            let place = (*group, *place);
            self.asked.push(Asked { node, place, has_answered: false, lacks_it: false });
            shared.request_of((*group, 1 << place.1), self.op, self.id, Wanted::Get);
        }
        self.until_ns = now_ns.saturating_add(shared.config.timing.answers_ns);
        !former.is_empty()
    }

    pub(super) fn on_answer(&mut self, now_ns: u64, answer: &ChunkAnswer, shared: &mut Shared) {
        if answer.id != self.id || answer.op != self.op || self.is_waiting {
            return;
        }
        let Some(asked) = self.asked.iter_mut().find(|asked| asked.node == answer.node) else {
            shared.counters.unexpected += 1;
            return;
        };
        let is_first = !core::mem::replace(&mut asked.has_answered, true);
        match answer.answer {
            Answer::Held { bytes, token, wait_ns } if is_first => {
                self.holders.push(Holder { place: asked.place, bytes, token, wait_ns });
            }
            // The target held the chunk before. It may have dropped it in favour of targets that
            // were asked before they had it (P12), so its answer does not count as "not found".
            Answer::NotFound => {
                asked.lacks_it |= is_first;
                let place = asked.place;
                self.holders.retain(|holder| holder.place != place);
                if self.reading.as_ref().is_some_and(|reading| reading.from.place == place) {
                    self.reading = None;
                }
            }
            _ => {}
        }
        self.go_on(now_ns, shared);
    }

    /// Starts to read from the least busy holder, as soon as one is idle or all targets have
    /// answered.
    fn go_on(&mut self, now_ns: u64, shared: &mut Shared) {
        if self.reading.is_some() {
            return;
        }
        let all_answered = self.asked.iter().all(|asked| asked.has_answered);
        let is_free = |holder: &Holder| holder.wait_ns == 0;
        if all_answered || now_ns >= self.until_ns || self.holders.iter().any(is_free) {
            let best = self.holders.iter().enumerate().min_by_key(|(_, holder)| holder.wait_ns);
            if let Some((at, _)) = best {
                return self.read(now_ns, at, shared);
            }
        }
        let is_over = all_answered || now_ns >= self.until_ns;
        if is_over && !self.is_former_asked && self.ask_former(now_ns, shared) {
            return;
        }
        let none_has_it = self.asked.iter().all(|asked| asked.lacks_it);
        if none_has_it {
            return shared.end_get(self.handle, Err(GetError::NotFound));
        }
        if is_over {
            self.wait(now_ns, shared);
        }
    }

    fn wait(&mut self, now_ns: u64, shared: &mut Shared) {
        self.until_ns = now_ns.saturating_add(shared.pause_ns(self.attempts));
        self.attempts += 1;
        (self.is_waiting, self.reading) = (true, None);
    }

    fn read(&mut self, now_ns: u64, at: usize, shared: &mut Shared) {
        let from = self.holders.swap_remove(at);
        let frames = FrameRequests::new(frames_of(from.bytes), shared.config.timing.frames_ns);
        self.reading = Some(Reading { from, frames, bytes: vec![0; from.bytes as usize] });
        self.ask_for_frames(now_ns, shared);
    }

    fn ask_for_frames(&mut self, now_ns: u64, shared: &mut Shared) {
        let Some(reading) = &mut self.reading else { return };
        let (op, version, id, token) = (self.op, shared.version(), self.id, reading.from.token);
        while let Some((first, count)) = reading.frames.poll(now_ns) {
            let read = ChunkRead { op, reply_to: None, version, id, token, first, count };
            let (group, place) = reading.from.place;
            shared.send_to((group, 1 << place), |out| read.encode(out));
        }
        self.until_ns = reading.frames.next_deadline();
    }

    pub(super) fn on_frame(&mut self, now_ns: u64, frame: &Chunk<'_>, shared: &mut Shared) {
        let Some(reading) = self.reading.as_mut().filter(|_| frame.op == self.op) else { return };
        let placed = frame_of(reading.from.bytes, frame.number);
        let Some((start, _)) = placed.filter(|(_, length)| *length as usize == frame.bytes.len()) else {
            shared.counters.unexpected += 1;
            return;
        };
        if !reading.frames.take(now_ns, frame.number) {
            return;
        }
        reading.bytes[start as usize..][..frame.bytes.len()].copy_from_slice(frame.bytes);
        if !reading.frames.is_complete() {
            return self.ask_for_frames(now_ns, shared);
        }
        let bytes = core::mem::take(&mut reading.bytes);
        if chunk_id(&bytes) == self.id {
            return shared.end_get(self.handle, Ok(Arc::from(bytes)));
        }
        // A forged frame, or a damaged copy: try the next holder.
        shared.counters.wrong += 1;
        self.reading = None;
        self.go_on(now_ns, shared);
    }

    pub(super) fn on_deadline(&mut self, now_ns: u64, shared: &mut Shared) {
        if now_ns >= self.deadline_ns {
            return shared.end_get(self.handle, Err(GetError::Unavailable));
        }
        if now_ns < self.until_ns {
            return;
        }
        if self.is_waiting {
            return self.begin_anew(now_ns, shared);
        }
        let has_failed = self.reading.as_ref().is_some_and(|reading| reading.frames.has_failed(now_ns));
        if has_failed {
            self.reading = None;
        }
        match self.reading {
            Some(_) => self.ask_for_frames(now_ns, shared),
            None => self.go_on(now_ns, shared),
        }
    }

    pub(super) fn next_deadline(&self) -> u64 {
        self.until_ns.min(self.deadline_ns)
    }
}
