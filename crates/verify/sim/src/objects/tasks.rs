//! The request of a user that is under way.

use nicekv_objects::{Handle, chunk_id};
use nicekv_proto::chunk::{ChunkId, Round};
use nicekv_testkit::Random;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum bytes of a chunk, which then takes several frames.
const BYTES_MAX: u64 = 20_000;

/// The contents of chunks, which users know by numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    known: BTreeMap<u64, (ChunkId, Arc<[u8]>)>,
}

impl Contents {
    pub(super) fn get(&mut self, number: u64) -> (ChunkId, Arc<[u8]>) {
        let make = || {
            let mut random = Random::new(number);
            let length = random.between(1, BYTES_MAX);
            let bytes: Arc<[u8]> = (0..length).map(|_| random.bits() as u8).collect();
            (chunk_id(&bytes), bytes)
        };
        self.known.entry(number).or_insert_with(make).clone()
    }
}

/// A chunk of an object that is being put or got.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) content: u64,
    /// For a get: the name of the object, and the version of its manifest.
    pub(super) object: Option<(u64, u64)>,
    pub(super) handle: Option<Handle>,
    /// For a put: the stamp that the chunk got.
    pub(super) stamp: Option<Round>,
    pub(super) is_done: bool,
}

impl Part {
    pub(super) fn new(content: u64) -> Self {
        Self { content, object: None, handle: None, stamp: None, is_done: false }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Task {
    /// Puts the chunks, then the manifest.
    Put { number: u64, name: u64, parts: Vec<Part>, tries: u32 },
    /// Gets the chunks, then puts them under the name `copy_to`, if any.
    Get { parts: Vec<Part>, copy_to: Option<u64>, is_read_back: bool },
}

impl Task {
    pub(super) fn part(&mut self, handle: Handle) -> Option<&mut Part> {
        let (Self::Put { parts, .. } | Self::Get { parts, .. }) = self;
        parts.iter_mut().find(|part| part.handle == Some(handle))
    }

    pub(super) fn is_done(&self) -> bool {
        let (Self::Put { parts, .. } | Self::Get { parts, .. }) = self;
        parts.iter().all(|part| part.is_done)
    }
}
