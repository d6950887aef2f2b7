//! A chunk that is got.

use super::shared::Shared;
use super::told::{GetError, Handle};
use super::windows::Windows;
use crate::chunk_id;
use crate::plant::Plant;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use nicekv_wire::OpId;
use nicekv_wire::chunk::{Answer, ChunkAnswer, ChunkId, ChunkRead, Wanted, frame_of, frames_of};
use nicekv_wire::large::Chunk;

/// A target that holds it.
#[derive(Clone, Copy, Debug)]
struct Holder {
    place: u8,
    bytes: u32,
    token: u64,
    wait_ns: u64,
}

/// One of them is read.
#[derive(Clone, Debug)]
struct Reading {
    from: Holder,
    windows: Windows,
    bytes: Vec<u8>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Get {
    handle: Handle,
    id: ChunkId,
    /// The present attempt: who was asked, who has answered, and who of them has said that it does not hold it.
    op: OpId,
    asked: u16,
    answered: u16,
    lacking: u16,
    /// Those that hold it and were not read yet.
    holders: Vec<Holder>,
    reading: Option<Reading>,
    attempts: u32,
    /// When the next thing is to be done if nothing comes: a holder is chosen, or all are asked again.
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
            asked: 0,
            answered: 0,
            lacking: 0,
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

    /// Asks the group, by the present map.
    pub(super) fn begin_anew(&mut self, now_ns: u64, shared: &mut Shared) {
        let Some((_, group)) = shared.group_of(&self.id) else { return };
        self.asked = group.mask();
        (self.answered, self.lacking, self.is_waiting) = (0, 0, false);
        self.holders.clear();
        self.reading = None;
        self.op = shared.request(self.handle, self.id, Wanted::Get);
        self.until_ns = now_ns.saturating_add(shared.config.timing.answers_ns);
    }

    pub(super) fn on_answer(&mut self, now_ns: u64, answer: &ChunkAnswer, shared: &mut Shared) {
        if answer.id != self.id || answer.op != self.op || self.is_waiting {
            return;
        }
        let bit = 1 << answer.place;
        match answer.answer {
            Answer::Held { bytes, token, wait_ns } if self.answered & bit == 0 => {
                self.holders.push(Holder { place: answer.place, bytes, token, wait_ns });
            }
            Answer::NotFound => {
                self.lacking |= bit;
                let reads_it = |reading: &Reading| reading.from.place == answer.place;
                if self.reading.as_ref().is_some_and(reads_it) {
                    // It was damaged, or is deleted.
                    self.reading = None;
                }
            }
            _ => {}
        }
        self.answered |= bit;
        self.go_on(now_ns, shared);
    }

    /// Reads the target that is free first, as soon as one is or all have answered.
    fn go_on(&mut self, now_ns: u64, shared: &mut Shared) {
        if self.reading.is_some() {
            return;
        }
        let all_said = self.answered & self.asked == self.asked;
        let is_free = |holder: &Holder| holder.wait_ns == 0;
        if all_said || now_ns >= self.until_ns || self.holders.iter().any(is_free) {
            let best = self.holders.iter().enumerate().min_by_key(|(_, holder)| holder.wait_ns);
            if let Some((at, _)) = best {
                return self.read(now_ns, at, shared);
            }
        }
        let none_has_it =
            self.lacking & self.asked == self.asked || shared.has(Plant::NotFoundByOne) && self.lacking != 0;
        if none_has_it {
            return shared.end_get(self.handle, Err(GetError::NotFound));
        }
        if all_said || now_ns >= self.until_ns {
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
        let windows = Windows::new(frames_of(from.bytes), shared.config.timing.frames_ns);
        self.reading = Some(Reading { from, windows, bytes: vec![0; from.bytes as usize] });
        self.ask_for_frames(now_ns, shared);
    }

    fn ask_for_frames(&mut self, now_ns: u64, shared: &mut Shared) {
        let Some(reading) = &mut self.reading else { return };
        let (op, version, id, token) = (self.op, shared.version(), self.id, reading.from.token);
        while let Some((first, count)) = reading.windows.poll(now_ns) {
            let read = ChunkRead { op, reply_to: None, version, id, token, first, count };
            shared.send(&id, 1 << reading.from.place, |out| read.encode(out));
        }
        self.until_ns = reading.windows.next_deadline();
    }

    pub(super) fn on_frame(&mut self, now_ns: u64, frame: &Chunk<'_>, shared: &mut Shared) {
        let Some(reading) = self.reading.as_mut().filter(|_| frame.op == self.op) else { return };
        let placed = frame_of(reading.from.bytes, frame.number);
        let Some((start, _)) = placed.filter(|(_, length)| *length as usize == frame.bytes.len()) else {
            shared.counters.strangers += 1;
            return;
        };
        if !reading.windows.take(now_ns, frame.number) {
            return;
        }
        reading.bytes[start as usize..][..frame.bytes.len()].copy_from_slice(frame.bytes);
        if !reading.windows.is_complete() {
            return self.ask_for_frames(now_ns, shared);
        }
        let bytes = core::mem::take(&mut reading.bytes);
        if chunk_id(&bytes) == self.id || shared.has(Plant::UnverifiedRead) {
            return shared.end_get(self.handle, Ok(Arc::from(bytes)));
        }
        // A stranger's frame, or damage there: the next one.
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
        let in_vain = self.reading.as_ref().is_some_and(|reading| reading.windows.is_in_vain(now_ns));
        if in_vain {
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
