//! Who listens to what is published, as far as this node was told: soft state in memory, which every member of a partition has, so that whoever
//! becomes its primary knows it.
//!
//! ```text
//!   Listen ─▶ channel, pattern ─▶ (client's address, how many, until when) ─▶ Publish: one datagram to each address
//! ```
//!
//! A name is kept once per address: what its client says later wins, and a client with another id at the same address replaces the one before, which is no more. What
//! is not said again in time is forgotten.

use crate::kinds::Map;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use foldhash::fast::FixedState;
use nicekv_wire::publish::{Listen, ListenKind};
use nicekv_wire::{KeyspaceId, Now, OpId, Recent, glob};

/// Names with their listeners, of all keyspaces.
const LISTENERS_MAX: usize = 65_536;
/// Bytes of these names.
const NAME_BYTES_MAX: usize = 8 << 20;
/// Bytes of the patterns among them: each is compared with what is published.
const PATTERN_BYTES_MAX: usize = 64 << 10;
/// Nobody is remembered for longer, whatever was asked for.
const HOLD_MS_MAX: u32 = 60_000;
/// Published messages that are remembered, to tell repeats apart.
const RECENT_MAX: usize = 16_384;
/// How often what is over is looked for, in nanoseconds.
const SWEEP_EVERY_NS: u64 = 1_000_000_000;

/// Clients that listen are more than there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[derive(Clone, Debug)]
struct Listener {
    address: SocketAddrV4,
    op: OpId,
    count: u32,
    until_ns: u64,
}

impl Listener {
    /// Whether something else of this address came later than `op`.
    fn is_later_than(&self, op: OpId) -> bool {
        self.op.client == op.client && self.op.sequence > op.sequence
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Registry {
    channels: Map<(KeyspaceId, Vec<u8>), Vec<Listener>>,
    patterns: BTreeMap<(KeyspaceId, Vec<u8>), Vec<Listener>>,
    listeners: usize,
    name_bytes: usize,
    pattern_bytes: usize,
    recent: Recent,
    sweep_at_ns: u64,
    /// Who is told of one message.
    told: Vec<SocketAddrV4>,
}

impl Registry {
    /// Nobody listens.
    pub fn new(hash_seed: u64) -> Self {
        Self {
            channels: Map::with_hasher(FixedState::with_seed(hash_seed)),
            patterns: BTreeMap::new(),
            listeners: 0,
            name_bytes: 0,
            pattern_bytes: 0,
            recent: Recent::new(RECENT_MAX),
            sweep_at_ns: 0,
            told: Vec::new(),
        }
    }

    /// Names with listeners, each counted once for every address.
    pub fn listeners(&self) -> usize {
        self.listeners
    }

    /// Notes who listens.
    ///
    /// # Errors
    /// There are too many.
    pub fn listen(&mut self, now: Now, listen: &Listen<'_>, address: SocketAddrV4) -> Result<(), Full> {
        self.sweep(now);
        let hold_ms = listen.hold_ms.min(HOLD_MS_MAX);
        let until_ns = now.boot_ns.saturating_add(u64::from(hold_ms) * 1_000_000);
        let new = Listener { address, op: listen.op, count: listen.count, until_ns };
        let (kind, name) = (listen.kind, (listen.keyspace, listen.name.to_vec()));
        let known = self.of(kind, &name);
        match known.and_then(|known| known.iter_mut().find(|known| known.address == address)) {
            Some(known) if known.is_later_than(new.op) => return Ok(()),
            Some(known) if new.count > 0 => *known = new,
            Some(_) => self.remove(kind, &name, address),
            None if new.count == 0 => {}
            None => self.insert(kind, name, new)?,
        }
        Ok(())
    }

    fn of(&mut self, kind: ListenKind, name: &(KeyspaceId, Vec<u8>)) -> Option<&mut Vec<Listener>> {
        match kind {
            ListenKind::Channel => self.channels.get_mut(name),
            ListenKind::Pattern => self.patterns.get_mut(name),
        }
    }

    fn insert(
        &mut self,
        kind: ListenKind,
        name: (KeyspaceId, Vec<u8>),
        listener: Listener,
    ) -> Result<(), Full> {
        let bytes = name.1.len();
        let of_pattern = if kind == ListenKind::Pattern { bytes } else { 0 };
        if self.listeners == LISTENERS_MAX
            || self.name_bytes + bytes > NAME_BYTES_MAX
            || self.pattern_bytes + of_pattern > PATTERN_BYTES_MAX
        {
            return Err(Full);
        }
        self.listeners += 1;
        self.name_bytes += bytes;
        self.pattern_bytes += of_pattern;
        match kind {
            ListenKind::Channel => self.channels.entry(name).or_default().push(listener),
            ListenKind::Pattern => self.patterns.entry(name).or_default().push(listener),
        }
        Ok(())
    }

    fn remove(&mut self, kind: ListenKind, name: &(KeyspaceId, Vec<u8>), address: SocketAddrV4) {
        let Some(listeners) = self.of(kind, name) else { return };
        listeners.retain(|known| known.address != address);
        let is_empty = listeners.is_empty();
        if is_empty {
            match kind {
                ListenKind::Channel => drop(self.channels.remove(name)),
                ListenKind::Pattern => drop(self.patterns.remove(name)),
            }
        }
        self.forget(name.1.len(), kind, 1);
    }

    /// So many listeners of a name of so many bytes are no more.
    fn forget(&mut self, bytes: usize, kind: ListenKind, count: usize) {
        self.listeners -= count;
        self.name_bytes -= bytes * count;
        if kind == ListenKind::Pattern {
            self.pattern_bytes -= bytes * count;
        }
    }

    /// Forgets who has not said again that it listens.
    fn sweep(&mut self, now: Now) {
        if now.boot_ns < self.sweep_at_ns {
            return;
        }
        self.sweep_at_ns = now.boot_ns + SWEEP_EVERY_NS;
        let mut gone = Vec::new();
        let mut keep = |kind, name: &(KeyspaceId, Vec<u8>), listeners: &mut Vec<Listener>| {
            let before = listeners.len();
            listeners.retain(|listener| listener.until_ns > now.boot_ns);
            if listeners.len() < before {
                gone.push((name.1.len(), kind, before - listeners.len()));
            }
            !listeners.is_empty()
        };
        self.channels.retain(|name, listeners| keep(ListenKind::Channel, name, listeners));
        self.patterns.retain(|name, listeners| keep(ListenKind::Pattern, name, listeners));
        for (bytes, kind, count) in gone {
            self.forget(bytes, kind, count);
        }
    }

    /// What came of a message that is published again.
    pub fn repeated(&self, op: OpId) -> Option<u32> {
        self.recent.get(op)
    }

    /// A message is published: who is to be told, each once, and how many listen there. They are counted as Redis counts: once for the channel and once
    /// for each pattern.
    pub fn publish(
        &mut self,
        now: Now,
        keyspace: KeyspaceId,
        op: OpId,
        channel: &[u8],
    ) -> (&[SocketAddrV4], u32) {
        self.sweep(now);
        self.told.clear();
        let mut count = 0_u32;
        let told = &mut self.told;
        let mut tell = |listeners: &[Listener]| {
            for listener in listeners.iter().filter(|listener| listener.until_ns > now.boot_ns) {
                count = count.saturating_add(listener.count);
                told.push(listener.address);
            }
        };
        if let Some(listeners) = self.channels.get(&(keyspace, channel.to_vec())) {
            tell(listeners);
        }
        for ((of, pattern), listeners) in &self.patterns {
            if *of == keyspace && glob::matches(pattern, channel) {
                tell(listeners);
            }
        }
        self.told.sort_unstable();
        self.told.dedup();
        self.recent.note(op, count);
        (&self.told, count)
    }
}

#[cfg(test)]
#[path = "pubsub_tests.rs"]
mod tests;
