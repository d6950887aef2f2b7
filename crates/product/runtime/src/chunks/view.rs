//! Cluster state for targets and initiators. A separate thread queries it, since a query may take
//! long.

use crate::{Stop, Waker};
use nicekv_metadata::{ChunkInfo, LayoutInfo};
use nicekv_objects::{Group, Layout, Map};
use nicekv_proto::NodeId;
use nicekv_proto::chunk::{MapVersion, Round};
use nicekv_proto::placement::GroupRing;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Interval between queries, unless [`View::want`] requests one.
const INTERVAL: Duration = Duration::from_secs(1);

/// The group map and the garbage collection round.
#[derive(Clone, Debug)]
pub struct Known {
    /// Group map, which assigns chunks to groups.
    pub map: Arc<Map>,
    /// Newest garbage collection round.
    pub round: Round,
    /// Whether all object names have adopted the round.
    pub is_adopted: bool,
    /// Number of replicas of a chunk: the maximum over all keyspaces with objects.
    pub copies: usize,
}

impl Known {
    /// Converts an answer of the metadata service; `None` if it is inconsistent.
    pub fn of(chunks: &ChunkInfo) -> Option<Self> {
        let before = match &chunks.before {
            Some(before) => Some(layout_of(before)?),
            None => None,
        };
        let map = Map::of(MapVersion(chunks.version), layout_of(&chunks.layout)?, before).ok()?;
        let (round, is_adopted, copies) = (Round(chunks.round), chunks.is_adopted, chunks.copies);
        Some(Self { map: Arc::new(map), round, is_adopted, copies })
    }
}

/// The ring of the groups' addresses.
pub fn ring_of(chunks: &ChunkInfo) -> GroupRing {
    let (base, length, port, target_port) = chunks.ring;
    GroupRing { base, length, port, target_port }
}

fn layout_of(info: &LayoutInfo) -> Option<Layout> {
    let group = |nodes: &Vec<Option<u16>>| {
        let places: Vec<Option<NodeId>> = nodes.iter().map(|node| node.map(NodeId)).collect();
        // A group without members stays in the list, so that the others keep their numbers.
        if places.iter().all(Option::is_none) { Ok(Group::default()) } else { Group::at_places(&places) }
    };
    let groups = info.groups.iter().map(group).collect::<Result<_, _>>().ok()?;
    Layout::new(groups, info.slots.as_slice().try_into().ok()?).ok()
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wanted: Condvar,
}

#[derive(Default)]
struct State {
    known: Option<Known>,
    /// Incremented with every result.
    version: u64,
    is_wanted: bool,
    is_over: bool,
}

/// Cluster state that is kept up to date; see the module documentation.
pub struct View {
    shared: Arc<Shared>,
    seen: u64,
}

impl View {
    /// Starts the thread. `ask` queries the state; it may block, and returns `None` if nothing is
    /// known yet. `waker` is woken when there is a new state.
    pub fn begin(
        name: &str,
        waker: Waker,
        mut ask: impl FnMut() -> Option<Known> + Send + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let asking = shared.clone();
        std::thread::Builder::new().name(format!("{name}-view")).spawn(move || {
            while !asking.is_over() {
                if let Some(known) = ask() {
                    asking.tell(known, &waker);
                }
                asking.rest();
            }
        })?;
        Ok(Self { shared, seen: 0 })
    }

    /// The state, if it has changed since the last call.
    pub(super) fn news(&mut self) -> Option<Known> {
        let state = self.shared.locked();
        if state.version == self.seen {
            return None;
        }
        self.seen = state.version;
        state.known.clone()
    }

    /// Requests a query now, because a peer knows a newer state.
    pub(super) fn want(&self) {
        self.shared.locked().is_wanted = true;
        self.shared.wanted.notify_one();
    }

    /// Ends the thread if the role was stopped. Returns whether it was.
    pub(super) fn end_with(&self, stop: &Stop) -> bool {
        let is_over = stop.is_stopped();
        if is_over {
            self.end();
        }
        is_over
    }

    fn end(&self) {
        self.shared.locked().is_over = true;
        self.shared.wanted.notify_one();
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.locked().is_over
    }

    fn tell(&self, known: Known, waker: &Waker) {
        let mut state = self.locked();
        let of = |known: &Known| (known.map.version(), known.round, known.is_adopted, known.copies);
        let is_same = |old: &Known| of(old) == of(&known);
        if !state.known.as_ref().is_some_and(is_same) {
            state.known = Some(known);
            state.version += 1;
            drop(state);
            waker.wake();
        }
    }

    fn rest(&self) {
        let mut state = self.locked();
        if !state.is_wanted && !state.is_over {
            state = self.wanted.wait_timeout(state, INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_wanted = false;
    }
}
