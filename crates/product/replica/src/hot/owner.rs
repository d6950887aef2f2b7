//! The primary of hot keys: decides which copies of its keys may exist, and whether an op may be
//! decided while they do.

use super::bounds::{HOT_KEYS_MAX, Name};
use super::key::HotKey;
use super::leases::{Answered, Leases, Peer};
use super::spread::Spread;
use crate::node::outbox::Outbox;
use crate::node::status::HotCounters;
use crate::node::visibility::{Shift, ShiftKind};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::hot::{HotAssign, HotClose, HotCopy, HotDrop, HotLeased, HotPulsed, Stamp};
use nicekv_proto::recovery::Entry;
use nicekv_proto::{Form, Now, PartitionId};

/// A member that does not lead passes a get of each hot name to the primary at most once in this
/// time, so that the primary learns the key.
const SHOW_NS: u64 = 100_000_000;
/// Bound on known keys of one name. Where keys are partitioned by range, keys that share their
/// first 16 bytes share a name.
const KEYS_OF_NAME_MAX: usize = 16;

/// A key and its partition.
pub(super) type Key = (PartitionId, Box<[u8]>);

/// For a partition that this node leads, returns an address of its vring, through which messages
/// reach the switch.
pub(crate) type Leads<'a> = &'a dyn Fn(PartitionId) -> Option<SocketAddrV4>;

#[derive(Clone, Debug)]
pub(crate) struct Owner {
    spreads: BTreeMap<Name, Spread>,
    keys: BTreeMap<Key, HotKey>,
    of_name: BTreeMap<Name, Vec<Key>>,
    /// The keys in order of their next check.
    looks: BTreeSet<(u64, Key)>,
    leases: Leases,
    /// When to renew leases next.
    pulse_ns: u64,
    /// Partitions for which no new copies may be made, because this node is about to stop leading
    /// them.
    closing: BTreeSet<PartitionId>,
    /// Keys whose waiting ops may be decided now.
    woken: Vec<Key>,
}

impl Owner {
    /// State of a process that has just started.
    pub(crate) fn new(incarnation: u64) -> Self {
        Self {
            spreads: BTreeMap::new(),
            keys: BTreeMap::new(),
            of_name: BTreeMap::new(),
            looks: BTreeSet::new(),
            leases: Leases::new(incarnation),
            pulse_ns: u64::MAX,
            closing: BTreeSet::new(),
            woken: Vec::new(),
        }
    }

    /// The metadata service assigns holders to a name. Returns whether the assignment differs from
    /// the present one.
    pub(crate) fn assign(&mut self, assign: &HotAssign, outbox: &mut Outbox) -> bool {
        let name = (assign.keyspace, assign.digest);
        let wanted = Spread::new(assign);
        let is_for_nobody = wanted.peers().next().is_none();
        let is_news = match self.spreads.get(&name) {
            Some(known) if known.instance == wanted.instance => !known.is_same(&wanted),
            Some(known) => known.instance < wanted.instance,
            None => !is_for_nobody && self.spreads.len() < HOT_KEYS_MAX,
        };
        if !is_news {
            return false;
        }
        wanted.peers().for_each(|peer| self.leases.want(peer));
        if let Some(before) = self.spreads.remove(&name) {
            before.peers().for_each(|peer| self.leases.unwant(peer));
            for holder in before.holders.iter().filter(|holder| !wanted.holders.contains(holder)) {
                let drop = HotDrop { keyspace: name.0, digest: name.1, instance: assign.instance };
                outbox.send(*holder, |out| drop.encode(out));
            }
        }
        if !is_for_nobody {
            self.spreads.insert(name, wanted);
        }
        for key in self.of_name.get(&name).cloned().unwrap_or_default() {
            self.change(&key, |hot| hot.renew(assign.instance));
        }
        true
    }

    /// Whether no copies are assigned, so requests need no check.
    pub(crate) fn is_idle(&self) -> bool {
        self.spreads.is_empty()
    }

    /// Whether the switch should have copies of keys of this name. It then answers gets that are as
    /// long as the reply (G8, H9).
    pub(crate) fn is_in_switch(&self, name: &Name) -> bool {
        self.spreads.get(name).is_some_and(|spread| spread.in_switch)
    }

    /// Whether this member should pass a get of this name on to the primary: at most once in
    /// [`SHOW_NS`].
    pub(crate) fn is_to_be_shown(&mut self, now: Now, name: &Name) -> bool {
        let Some(spread) = self.spreads.get_mut(name) else { return false };
        let is_time = now.boot_ns >= spread.shown_ns + SHOW_NS;
        spread.shown_ns = if is_time { now.boot_ns } else { spread.shown_ns };
        is_time
    }

    /// Whether copies of a key are wanted whose shown entry is not known.
    pub(crate) fn lacks(&self, partition: PartitionId, name: &Name, key: &[u8]) -> bool {
        let is_known = || self.keys.get(&(partition, key.into())).is_some_and(|hot| hot.entry().is_some());
        self.spreads.contains_key(name) && !is_known()
    }

    /// Changes a key's state, and has the key checked at once.
    fn change(&mut self, key: &Key, change: impl FnOnce(&mut HotKey)) {
        let Some(hot) = self.keys.get_mut(key) else { return };
        change(hot);
        self.look_at(key, 0);
        let hot = self.keys.get_mut(key).expect("it was there before");
        if hot.take_awaited() {
            self.woken.push(key.clone());
        }
    }

    fn look_at(&mut self, key: &Key, at_ns: u64) {
        let hot = self.keys.get_mut(key).expect("a known key");
        if hot.look_ns != at_ns {
            self.looks.remove(&(hot.look_ns, key.clone()));
            hot.look_ns = at_ns;
        }
        self.looks.insert((at_ns, key.clone()));
    }

    fn forget(&mut self, key: &Key) {
        let Some(hot) = self.keys.remove(key) else { return };
        self.looks.remove(&(hot.look_ns, key.clone()));
        if let Some(keys) = self.of_name.get_mut(&hot.name) {
            keys.retain(|other| other != key);
            if keys.is_empty() {
                self.of_name.remove(&hot.name);
            }
        }
    }

    /// A request for a key carried a switch's stamp: from now on the switch stamps with this number
    /// or a greater one (H4).
    pub(crate) fn note_stamp(&mut self, partition: PartitionId, key: &[u8], stamp: Stamp) {
        if stamp.is_some() && !self.keys.is_empty() {
            self.change(&(partition, key.into()), |hot| hot.note(stamp));
        }
    }

    /// The switch reports its count of an instance, or that it has dropped the instance. A dropped
    /// instance needs no copies.
    pub(crate) fn on_closed(&mut self, name: Name, stamp: Stamp) {
        let is_gone = |spread: &Spread| spread.instance == stamp.instance && stamp.seen == u64::MAX;
        if self.spreads.get(&name).is_some_and(is_gone) {
            let spread = self.spreads.remove(&name).expect("it was there before");
            spread.peers().for_each(|peer| self.leases.unwant(peer));
        }
        for key in self.of_name.get(&name).cloned().unwrap_or_default() {
            self.change(&key, |hot| hot.closed(stamp));
        }
    }

    /// Whether ops of a key may be decided now (H4). If not, [`Self::poll_woken`] returns the key
    /// when they may.
    pub(crate) fn may_decide(
        &mut self,
        now: Now,
        partition: PartitionId,
        key: &[u8],
        counters: &mut HotCounters,
    ) -> bool {
        if self.keys.is_empty() {
            return true;
        }
        let key = (partition, Box::from(key));
        let Some(hot) = self.keys.get_mut(&key) else { return true };
        hot.lapse(now);
        let may = !hot.is_open();
        if !may && hot.await_evidence() {
            counters.waits += 1;
            self.look_at(&key, 0);
        }
        may
    }

    /// Takes a key whose waiting ops may be decided now.
    pub(crate) fn poll_woken(&mut self) -> Option<Key> {
        self.woken.pop()
    }

    /// The shown state of a key has changed. `name`: the name of the key, if the change is a read.
    pub(crate) fn take(&mut self, shift: Shift, name: Option<Name>) {
        let partition = shift.partition;
        match shift.kind {
            ShiftKind::Unknown => {
                for key in self.keys_of(partition) {
                    self.change(&key, |hot| hot.set_entry(None));
                }
            }
            ShiftKind::Locked(key) => self.change(&(partition, key), HotKey::lock),
            ShiftKind::Unlocked(key) => self.change(&(partition, key), HotKey::unlock),
            ShiftKind::Changed(key, entry) => {
                let key = (partition, key);
                self.change(&key, |hot| hot.set_entry(copied(&key.1, entry.as_deref())));
            }
            ShiftKind::Read(key, entry) => self.read((partition, key), &entry, name),
        }
    }

    /// A get was answered with an entry, and no op locks its key. If copies are wanted, the owner
    /// knows the key from now on.
    fn read(&mut self, key: Key, entry: &[u8], name: Option<Name>) {
        if !self.keys.contains_key(&key)
            && let Some(name) = name
            && let Some(spread) = self.spreads.get(&name)
        {
            let of_name = self.of_name.entry(name).or_default();
            if of_name.len() < KEYS_OF_NAME_MAX && self.keys.len() < HOT_KEYS_MAX {
                of_name.push(key.clone());
                self.keys.insert(key.clone(), HotKey::new(name, spread.instance));
                self.looks.insert((0, key.clone()));
            }
        }
        self.change(&key, |hot| hot.set_entry(copied(&key.1, Some(entry))));
    }

    fn keys_of(&self, partition: PartitionId) -> Vec<Key> {
        let all = self.keys.range((partition, Box::default())..);
        all.map(|(key, _)| key).take_while(|(of, _)| *of == partition).cloned().collect()
    }

    fn keys_that(&self, are_so: impl Fn(&HotKey) -> bool) -> Vec<Key> {
        self.keys.iter().filter(|(_, hot)| are_so(hot)).map(|(key, _)| key.clone()).collect()
    }

    /// A holder answers a pulse.
    pub(crate) fn on_pulsed(&mut self, now: Now, from: SocketAddrV4, pulsed: &HotPulsed) {
        let Answered { is_new, is_last } = self.leases.on_pulsed(now, from, pulsed);
        if is_new {
            self.copy_anew(Peer::Node(from));
        }
        if is_last {
            let taken_back = self.keys_that(|hot| hot.is_open() && !hot.is_renewed());
            taken_back.iter().for_each(|key| self.change(key, HotKey::end));
        }
    }

    /// The switch answers a pulse.
    pub(crate) fn on_leased(&mut self, now: Now, leased: &HotLeased) {
        if self.leases.on_leased(now, leased) {
            self.copy_anew(Peer::Switch);
        }
    }

    /// A restarted holder has no copies: makes all of its copies due.
    fn copy_anew(&mut self, holder: Peer) {
        self.pulse_ns = 0;
        let has = self.spreads.iter().filter(|(_, spread)| spread.peers().any(|peer| peer == holder));
        let names: Vec<(Name, u64)> = has.map(|(name, spread)| (*name, spread.instance)).collect();
        for (name, instance) in names {
            for key in self.of_name.get(&name).cloned().unwrap_or_default() {
                self.change(&key, |hot| hot.renew(instance));
            }
        }
    }

    /// Revokes all copies that may be shown now. They end with their leases at the latest; those
    /// that are still wanted are sent again.
    fn take_back(&mut self, counters: &mut HotCounters) {
        let until_ns = self.leases.renounce();
        self.pulse_ns = 0;
        counters.revocations += 1;
        let open = self.keys_that(HotKey::is_renewed);
        open.iter().for_each(|key| self.change(key, |hot| hot.take_back(until_ns)));
    }

    /// Whether copies of a partition may still be shown. Must be asked before this node
    /// acknowledges an epoch in which it no longer leads the partition (H5). From the first call on
    /// no new copies are made.
    pub(crate) fn holds_back(
        &mut self,
        now: Now,
        partition: PartitionId,
        counters: &mut HotCounters,
    ) -> bool {
        self.closing.insert(partition);
        let keys = self.keys_of(partition);
        if keys.iter().any(|key| self.keys[key].is_renewed()) {
            self.take_back(counters);
        }
        keys.iter().for_each(|key| self.change(key, |hot| hot.lapse(now)));
        !self.is_quiet(partition)
    }

    /// Whether no copy of a partition may be shown.
    pub(crate) fn is_quiet(&self, partition: PartitionId) -> bool {
        self.keys_of(partition).iter().all(|key| !self.keys[key].is_open())
    }

    /// This node has entered a new epoch of a partition, as its primary or not.
    pub(crate) fn entered(&mut self, partition: PartitionId, leads: bool) {
        self.closing.remove(&partition);
        if !leads {
            self.keys_of(partition).iter().for_each(|key| self.forget(key));
        }
    }

    /// Sends messages that are due. `direct_until_ns`: when this node's direct lease (R12) ends,
    /// and with it its right to let holders show copies.
    pub(crate) fn flush(
        &mut self,
        now: Now,
        leads: Leads<'_>,
        direct_until_ns: u64,
        outbox: &mut Outbox,
        counters: &mut HotCounters,
    ) {
        let has_lease = now.boot_ns < direct_until_ns;
        let mut takes_back = true;
        while takes_back {
            takes_back = false;
            while let Some((at_ns, _)) = self.looks.first()
                && *at_ns <= now.boot_ns
            {
                let (_, key) = self.looks.pop_first().expect("there is one");
                takes_back |= self.look(now, &key, leads(key.0), has_lease, outbox, counters);
            }
            if takes_back {
                self.take_back(counters);
            }
        }
        self.leases.pulse(now, direct_until_ns, outbox);
        self.pulse_ns = self.leases.next_ns(now);
    }

    /// Checks a key and sends what is due for it. Returns whether its copies have to be revoked.
    fn look(
        &mut self,
        now: Now,
        key: &Key,
        vring: Option<SocketAddrV4>,
        has_lease: bool,
        outbox: &mut Outbox,
        counters: &mut HotCounters,
    ) -> bool {
        let may_copy = has_lease && vring.is_some() && !self.closing.contains(&key.0);
        let hot = self.keys.get_mut(key).expect("only known keys are looked at");
        let (spread, (keyspace, digest)) = (self.spreads.get(&hot.name), hot.name);
        let wanted = spread.map(|spread| spread.instance);
        let step = hot.step(now, wanted, may_copy);
        if let (Some(stamp), Some(spread), Some(vring)) = (step.copy, spread, vring)
            && let Some(entry) = hot.entry()
        {
            let copy =
                HotCopy { keyspace, digest, stamp, serial: self.leases.serial(), vring, key: &key.1, entry };
            spread.send(now, &copy, &mut self.leases, outbox, counters);
        }
        if let (Some(stamp), Some(vring)) = (step.ask, vring) {
            let close = HotClose { keyspace, digest, stamp };
            outbox.send(vring, |out| close.encode(out));
        }
        let next_ns = hot.next_ns(now, wanted, may_copy);
        if hot.take_awaited() {
            self.woken.push(key.clone());
        }
        if step.is_over {
            self.forget(key);
        } else {
            self.look_at(key, next_ns);
        }
        step.takes_back
    }

    /// When [`Self::flush`] must be called next.
    pub(crate) fn next_deadline(&self) -> u64 {
        let look_ns = self.looks.first().map_or(u64::MAX, |(at_ns, _)| *at_ns);
        look_ns.min(self.pulse_ns)
    }
}

/// The entry, if it may have copies; if not, only the primary answers gets of the key (R11). A copy
/// message has room for any value that a client can put.
fn copied(key: &[u8], entry: Option<&[u8]>) -> Option<Box<[u8]>> {
    let is_lasting =
        |entry: &Entry<'_>| entry.value.is_some() && entry.form == Form::Plain && entry.expiry_ms == 0;
    let may_have =
        |bytes: &&[u8]| Entry::decode(bytes).is_ok_and(|entry| is_lasting(&entry) && entry.may_be_of(key));
    entry.filter(may_have).map(Box::from)
}
