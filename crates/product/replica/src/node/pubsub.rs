//! The listeners of published messages that this node knows. They are soft state in memory, kept at
//! every member of a partition, so that any of them can become the primary.
//!
//! ```text
//!   Listen ─▶ channel, pattern ─▶ (client's address, how many, until when) ─▶ Publish: sent once to each address
//! ```
//!
//! Each name has one entry per address. A later message of the client replaces an earlier one. If a
//! client with another id uses the same address, it replaces the earlier client, which no longer
//! exists. Registrations expire unless they are repeated. A client that stops listening is
//! remembered as such for the same time, because its earlier messages may still arrive (M2).

use crate::types::Map;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use foldhash::fast::FixedState;
use hashbrown::Equivalent;
use nicekv_proto::limits::VALUE_BYTES_MAX;
use nicekv_proto::publish::{Listen, ListenKind, Published};
use nicekv_proto::{KeyspaceId, Now, OpId, Recent, glob};

/// Bound on listeners: names times addresses, over all keyspaces.
const LISTENERS_MAX: usize = 65_536;
/// How many bytes one published message may make a node send.
const TOLD_BYTES_MAX: usize = 64 << 20;
const _: () = assert!(LISTENERS_MAX * VALUE_BYTES_MAX <= TOLD_BYTES_MAX);
/// Bytes of the names of all listeners.
const NAME_BYTES_MAX: usize = 8 << 20;
/// Bytes of the patterns among these names; each pattern is compared with every message.
const PATTERN_BYTES_MAX: usize = 64 << 10;
/// Longest time for which a registration is valid.
const HOLD_MS_MAX: u32 = 60_000;
/// How many published messages are remembered to detect repeats.
const RECENT_MAX: usize = 16_384;
/// Interval at which expired registrations are removed, in nanoseconds.
const SWEEP_EVERY_NS: u64 = 1_000_000_000;

/// The error that there are too many listeners.
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
    /// Whether this listener was set by a later message of the same client.
    fn is_later_than(&self, op: OpId) -> bool {
        self.op.client == op.client && self.op.sequence > op.sequence
    }
}

/// The channels or the patterns of all keyspaces.
type Names = Map<(KeyspaceId, Vec<u8>), Vec<Listener>>;

/// A borrowed name, for lookups without a copy.
#[derive(Hash)]
struct Name<'a>(KeyspaceId, &'a [u8]);

impl Equivalent<(KeyspaceId, Vec<u8>)> for Name<'_> {
    fn equivalent(&self, (keyspace, name): &(KeyspaceId, Vec<u8>)) -> bool {
        self.0 == *keyspace && self.1 == name
    }
}

#[derive(Clone, Debug)]
pub struct Registry {
    channels: Names,
    patterns: Names,
    listeners: usize,
    name_bytes: usize,
    pattern_bytes: usize,
    recent: Recent,
    sweep_at_ns: u64,
    /// The addresses to which the current message goes.
    told: Vec<SocketAddrV4>,
}

impl Registry {
    /// A registry without listeners.
    pub fn new(hash_seed: u64) -> Self {
        let names = Map::with_hasher(FixedState::with_seed(hash_seed));
        Self {
            channels: names.clone(),
            patterns: names,
            listeners: 0,
            name_bytes: 0,
            pattern_bytes: 0,
            recent: Recent::new(RECENT_MAX),
            sweep_at_ns: 0,
            told: Vec::new(),
        }
    }

    /// Number of listeners: names times addresses. Includes those that have left recently.
    pub fn listeners(&self) -> usize {
        self.listeners
    }

    /// Registers listeners, or removes them (count 0).
    ///
    /// # Errors
    /// There are too many listeners.
    pub fn listen(&mut self, now: Now, listen: &Listen<'_>, address: SocketAddrV4) -> Result<(), Full> {
        self.sweep(now);
        let hold_ms = listen.hold_ms.min(HOLD_MS_MAX);
        let until_ns = now.boot_ns.saturating_add(u64::from(hold_ms) * 1_000_000);
        let new = Listener { address, op: listen.op, count: listen.count, until_ns };
        let known = self.of(listen.kind).get_mut(&Name(listen.keyspace, listen.name));
        match known.and_then(|known| known.iter_mut().find(|known| known.address == address)) {
            Some(known) if known.is_later_than(new.op) => Ok(()),
            Some(known) => {
                *known = new;
                Ok(())
            }
            None => self.insert(listen, new),
        }
    }

    fn of(&mut self, kind: ListenKind) -> &mut Names {
        match kind {
            ListenKind::Channel => &mut self.channels,
            ListenKind::Pattern => &mut self.patterns,
        }
    }

    fn insert(&mut self, listen: &Listen<'_>, listener: Listener) -> Result<(), Full> {
        let bytes = listen.name.len();
        let of_pattern = if listen.kind == ListenKind::Pattern { bytes } else { 0 };
        if self.listeners == LISTENERS_MAX
            || self.name_bytes + bytes > NAME_BYTES_MAX
            || self.pattern_bytes + of_pattern > PATTERN_BYTES_MAX
        {
            // A listener that leaves and is not registered need not be recorded.
            return if listener.count == 0 { Ok(()) } else { Err(Full) };
        }
        self.listeners += 1;
        self.name_bytes += bytes;
        self.pattern_bytes += of_pattern;
        let name = (listen.keyspace, listen.name.to_vec());
        self.of(listen.kind).entry(name).or_default().push(listener);
        Ok(())
    }

    /// Removes expired registrations.
    fn sweep(&mut self, now: Now) {
        if now.boot_ns < self.sweep_at_ns {
            return;
        }
        self.sweep_at_ns = now.boot_ns + SWEEP_EVERY_NS;
        let (channels, channel_bytes) = sweep(&mut self.channels, now);
        let (patterns, pattern_bytes) = sweep(&mut self.patterns, now);
        self.listeners -= channels + patterns;
        self.name_bytes -= channel_bytes + pattern_bytes;
        self.pattern_bytes -= pattern_bytes;
    }

    /// If this message was published before: the number of listeners that it had.
    pub fn repeated(&self, op: OpId) -> Option<u32> {
        self.recent.get(op)
    }

    /// Publishes a message: returns the addresses to send it to, and the number of listeners. These
    /// are counted as Redis does (M3), once for the channel and once for each pattern. `None`: the
    /// message is too long for that many receivers, and is not sent.
    pub fn publish(&mut self, now: Now, published: &Published<'_>) -> Option<(&[SocketAddrV4], u32)> {
        let Published { keyspace, op, channel, message } = *published;
        self.sweep(now);
        self.told.clear();
        let mut count = 0_u32;
        let told = &mut self.told;
        let mut tell = |listeners: &[Listener]| {
            let here =
                listeners.iter().filter(|listener| listener.count > 0 && listener.until_ns > now.boot_ns);
            for listener in here {
                count = count.saturating_add(listener.count);
                told.push(listener.address);
            }
        };
        if let Some(listeners) = self.channels.get(&Name(keyspace, channel)) {
            tell(listeners);
        }
        for ((of, pattern), listeners) in &self.patterns {
            if *of == keyspace && glob::matches(pattern, channel) {
                tell(listeners);
            }
        }
        self.told.sort_unstable();
        self.told.dedup();
        if self.told.len() * (channel.len() + message.len()) > TOLD_BYTES_MAX {
            return None;
        }
        self.recent.note(op, count);
        Some((&self.told, count))
    }
}

/// Removes expired listeners. Returns how many, and the bytes of their names.
fn sweep(names: &mut Names, now: Now) -> (usize, usize) {
    let (mut gone, mut bytes) = (0, 0);
    names.retain(|name, listeners| {
        let before = listeners.len();
        listeners.retain(|listener| listener.until_ns > now.boot_ns);
        gone += before - listeners.len();
        bytes += (before - listeners.len()) * name.1.len();
        !listeners.is_empty()
    });
    (gone, bytes)
}

#[cfg(test)]
#[path = "pubsub_tests.rs"]
mod tests;
