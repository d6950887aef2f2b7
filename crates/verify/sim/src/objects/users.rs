//! Users: they put, get, copy and delete objects, and check the results.

use super::names::Manifest;
use super::tasks::{Part, Task};
use super::world::{Event, MS, World};
use nicekv_objects::{Event as Told, GetError, Handle, PutError};
use nicekv_proto::chunk::Round;
use std::sync::Arc;

/// Maximum chunks of an object.
const PARTS_MAX: u64 = 4;
/// Retries of a put whose stamp the names reject.
const TRIES_MAX: u32 = 30;

impl World {
    pub(super) fn tell_initiator(&mut self, initiator: usize) {
        let (map, now_ns) = (self.map.clone(), self.queue.now_ns());
        self.initiators[initiator].core.set_map(now_ns, map);
        self.drain_initiator(initiator);
    }

    fn rest(&mut self, initiator: usize) {
        let at_ns = self.queue.now_ns() + self.random.below(10 * MS);
        self.queue.at(at_ns, Event::User { initiator });
    }

    pub(super) fn begin_task(&mut self, initiator: usize) {
        if self.is_healed || self.initiators[initiator].task.is_some() {
            return;
        }
        let name = self.random.below(self.shape.names);
        match self.random.below(10) {
            0..=3 => {
                let contents = self.draw_contents();
                self.begin_put(initiator, name, contents);
            }
            4..=6 => self.begin_get(initiator, name, None),
            7 => {
                let copy_to = Some(self.random.below(self.shape.names));
                self.begin_get(initiator, name, copy_to);
            }
            _ => {
                self.names.delete(name);
                self.report.deleted += 1;
                self.rest(initiator);
            }
        }
    }

    fn draw_contents(&mut self) -> Vec<u64> {
        let count = self.random.between(1, PARTS_MAX);
        let mut draw = || match self.random.below(5) {
            0 => 1_000 + self.random.below(1 << 40),
            _ => self.random.below(self.shape.contents),
        };
        (0..count).map(|_| draw()).collect()
    }

    fn begin_put(&mut self, initiator: usize, name: u64, contents: Vec<u64>) {
        let host = &mut self.initiators[initiator];
        host.tasks += 1;
        let number = host.tasks;
        let parts = contents.into_iter().map(Part::new).collect();
        host.task = Some(Task::Put { number, name, parts, tries: 0 });
        self.put_parts(initiator);
    }

    fn put_parts(&mut self, initiator: usize) {
        let now_ns = self.queue.now_ns();
        let host = &mut self.initiators[initiator];
        let Some(Task::Put { parts, .. }) = &mut host.task else { return };
        for part in parts {
            let (id, bytes) = self.contents.get(part.content);
            (part.is_done, part.stamp) = (false, None);
            part.handle = Some(host.core.put(now_ns, id, bytes));
        }
        self.drain_initiator(initiator);
    }

    fn put_manifest(&mut self, initiator: usize) {
        let Some(Task::Put { number, name, parts, .. }) = &self.initiators[initiator].task else { return };
        let stamp = parts.iter().filter_map(|part| part.stamp).min();
        let chunks = parts.iter().map(|part| (self.contents.get(part.content).0, part.content)).collect();
        let manifest = Manifest { chunks, stamp: stamp.unwrap_or_default() };
        let (task, name) = (*number, *name);
        let at_ns = self.queue.now_ns() + self.random.below(2 * MS);
        self.queue.at(at_ns, Event::Name { initiator, task, name, manifest });
    }

    /// Handles the answer of the names: the manifest is accepted or rejected.
    pub(super) fn on_name(&mut self, initiator: usize, task: u64, name: u64, manifest: Manifest) {
        let is_taken = self.names.put(name, manifest.clone());
        if is_taken {
            self.judge_manifest(name, &manifest);
        }
        let host = &mut self.initiators[initiator];
        let Some(Task::Put { number, tries, .. }) = &mut host.task else { return };
        if *number != task {
            return;
        }
        *tries += 1;
        if is_taken || *tries > TRIES_MAX {
            self.report.put += u64::from(is_taken);
            host.task = None;
            return self.rest(initiator);
        }
        // The chunks must be confirmed or put again, with stamps of the current round.
        self.put_parts(initiator);
    }

    fn begin_get(&mut self, initiator: usize, name: u64, copy_to: Option<u64>) {
        let parts = self.parts_of(name);
        if parts.is_empty() {
            return self.rest(initiator);
        }
        self.get_parts(initiator, Task::Get { parts, copy_to, is_read_back: false });
    }

    /// The chunks of an object, to be got; none if the object does not exist.
    pub(super) fn parts_of(&self, name: u64) -> Vec<Part> {
        let object = self.names.version(name).map(|version| (name, version));
        let chunks = self.names.get(name).into_iter().flat_map(|manifest| &manifest.chunks);
        chunks.map(|(_, content)| Part { object, ..Part::new(*content) }).collect()
    }

    pub(super) fn get_parts(&mut self, initiator: usize, mut task: Task) {
        let now_ns = self.queue.now_ns();
        let host = &mut self.initiators[initiator];
        let (Task::Get { parts, .. } | Task::Put { parts, .. }) = &mut task;
        for part in parts {
            let (id, _) = self.contents.get(part.content);
            part.handle = Some(host.core.get(now_ns, id));
        }
        host.task = Some(task);
        self.drain_initiator(initiator);
    }

    pub(super) fn on_event(&mut self, initiator: usize, event: Told) {
        match event {
            Told::NewerMap(_) => {
                let at_ns = self.queue.now_ns() + self.random.below(2 * MS);
                self.queue.at(at_ns, Event::TellInitiator { initiator });
            }
            Told::Put(handle, result) => self.on_put(initiator, handle, result.map(|placed| placed.stamp)),
            Told::Got(handle, result) => self.on_got(initiator, handle, result),
            // Only targets request counts of copies.
            Told::Counted(..) => {}
        }
    }

    fn on_put(&mut self, initiator: usize, handle: Handle, result: Result<Round, PutError>) {
        let host = &mut self.initiators[initiator];
        let Some(part) = host.task.as_mut().and_then(|task| task.part(handle)) else { return };
        match result {
            Ok(stamp) => (part.stamp, part.is_done) = (Some(stamp), true),
            Err(error) => {
                if self.is_healed && error == PutError::Unknown {
                    let late_ns = self.queue.now_ns() - self.shape.busy_ms * MS;
                    // A put that began during the faults may still fail.
                    if late_ns > self.shape.timing.deadline_ns {
                        self.judge.accuse(format!("a put failed although there are no faults: {error}"));
                    }
                }
                self.report.unknown += 1;
                host.task = None;
                return self.rest(initiator);
            }
        }
        if host.task.as_ref().is_some_and(Task::is_done) {
            self.put_manifest(initiator);
        }
    }

    fn on_got(&mut self, initiator: usize, handle: Handle, result: Result<Arc<[u8]>, GetError>) {
        let host = &mut self.initiators[initiator];
        let Some(task) = &mut host.task else { return };
        let Task::Get { is_read_back, .. } = task else { return };
        let is_read_back = *is_read_back;
        let Some(part) = task.part(handle) else { return };
        part.is_done = true;
        let object = part.object.expect("every chunk that is read belongs to an object");
        let (id, content) = self.contents.get(part.content);
        match result {
            Ok(bytes) if bytes == content => {}
            Ok(_) => self.judge.accuse(format!("the bytes read for chunk {id} differ from the chunk")),
            Err(error) => {
                self.judge_unread(object, &id, error, is_read_back);
                self.report.unknown += 1;
                if !is_read_back {
                    self.initiators[initiator].task = None;
                    return self.rest(initiator);
                }
            }
        }
        let host = &mut self.initiators[initiator];
        if !host.task.as_ref().is_some_and(Task::is_done) {
            return;
        }
        self.report.got += 1;
        match host.task.take() {
            Some(Task::Get { parts, copy_to: Some(name), .. }) => {
                let contents = parts.iter().map(|part| part.content).collect();
                self.begin_put(initiator, name, contents);
            }
            _ => self.rest(initiator),
        }
    }
}
