//! Repairs a damaged value (docs/FAULTS.md row 10) by fetching it from another member. Until then
//! this member does not serve it.
//!
//! ```text
//!  member (cannot read k)                 another consistent member
//!    │──RepairRequest(k, logged, released)──▶│ only if it has logged and released as much
//!    │                                       │ reads k in its own engine
//!    │◀─RepairReply(k, through, entry)───────│
//!    │ installs it once it has logged `through` itself
//! ```
//!
//! A key for which members have different entries (`compare`) is repaired in the same way, but by a
//! vote: all members are asked, this one included, and the majority's entry is installed.
//!
//! Gets of k are passed on to the primary. If the primary itself cannot read k, gets of k and the
//! evaluation of its next op wait.
//!
//! Why the answer may be installed:
//! * *It is not too old.* An engine holds the effects of decisions up to `logged` (uncontended) and
//!   up to `released` (contended), and two members' decisions are prefixes of one sequence. So a
//!   member that has logged and released at least as much as the asker had when it found the damage
//!   has every effect that was lost. If the asker applies a later effect to k in the meantime, the
//!   damage is gone and the repair is over.
//! * *It may be too new, but that is not visible.* A later effect comes from an op that the asker
//!   has synced (R1) and that has not taken effect there yet. So k is locked, and a secondary
//!   answers no get of it. When the decision arrives, the asker applies it once more, which is
//!   harmless because effects are blind writes. A primary's peers are never ahead of it.
//! * *The engine does not get ahead of the log.* Otherwise the asker, restarted and made primary,
//!   could evaluate an op on that op's own result. So the entry waits until the asker has logged
//!   every decision that may be contained in it.

use super::locks::{Latest, WaitingGet};
use super::partition::{Agreement, OrderedPartition};
use super::repairs::{Offer, Repair, Step, Vote};
use super::waits::PendingRead;
use crate::{Host, Standing};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::recovery::Entry;
use nicekv_proto::repair::{KeyState, RepairReply, RepairRequest};
use nicekv_proto::{Epoch, NodeId, Now};

/// The requester of a key: its epoch, its node, and what it had logged and released.
type Asker = (Epoch, NodeId, (u64, u64));

impl<A> OrderedPartition<A>
where
    Self: Agreement,
{
    /// The engine has found that the value for a get is damaged.
    pub(crate) fn on_get_corrupt(&mut self, host: &mut Host, now: Now, get: WaitingGet, key: &[u8]) {
        self.begin_repair(host, now, key);
        if self.membership.standing.serves() && !self.is_primary() && Self::PASSES_GETS_TO_PRIMARY {
            return self.forward_get(host, now, get, key);
        }
        if !self.repairs.wait(get, key) {
            host.counters.dropped += 1;
        }
    }

    /// Primary: the engine has found that the state for the next op of a key is damaged.
    pub(crate) fn on_state_corrupt(&mut self, host: &mut Host, now: Now, token: u64, key: &[u8]) {
        if self.locks.end_reading(key, token, Latest::Unknown) {
            self.begin_repair(host, now, key);
        }
    }

    /// Starts the repair of a key, unless it is under way.
    fn begin_repair(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        if self.repairs.contains(key) {
            return;
        }
        host.count_corrupt(self.id(), self.membership.epoch);
        if self.membership.standing.serves() && !self.repairs.is_full() {
            self.add_repair(host, now, key, false);
        }
    }

    fn add_repair(&mut self, host: &mut Host, now: Now, key: &[u8], is_vote: bool) {
        let asked = (self.sequence.logged(), self.sequence.released());
        let repair = self.repairs.begin(now, asked, is_vote, key);
        self.ask_for(host, &repair, key);
        host.arm_sweep(now);
    }

    /// Members seem to have different entries for a key: asks all of them, this one included.
    pub(crate) fn begin_vote(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        if !self.repairs.is_full() && !self.repairs.contains(key) {
            self.add_repair(host, now, key, true);
        }
    }

    /// A scan has found that these keys are damaged.
    pub(crate) fn begin_repairs(&mut self, host: &mut Host, now: Now, keys: &[Vec<u8>]) {
        for key in keys {
            self.begin_repair(host, now, key);
        }
    }

    /// The member to ask at try number `tries`: first the primary, then the other full members in
    /// turn.
    fn repair_peer(&self, host: &Host, tries: u32) -> Option<SocketAddrV4> {
        let me = host.config.node;
        let mut peers: Vec<_> = (self.membership.members.iter())
            .filter(|member| member.node != me && member.holds_all())
            .collect();
        peers.sort_by_key(|member| member.node != self.membership.primary);
        peers.get(tries as usize % peers.len().max(1)).map(|member| member.address)
    }

    fn ask_for(&mut self, host: &mut Host, repair: &Repair, key: &[u8]) {
        if let Some(votes) = &repair.votes {
            let silent: Vec<_> = self
                .membership
                .judges(host.config.node)
                .filter(|(node, _)| !votes.contains_key(node))
                .collect();
            silent.into_iter().for_each(|(_, address)| self.ask_peer(host, repair, key, address));
            if !votes.contains_key(&host.config.node) {
                let asker = (self.membership.epoch, host.config.node, repair.asked);
                self.read_for(host, asker, key);
            }
        } else if let Some(peer) = self.repair_peer(host, repair.tries) {
            self.ask_peer(host, repair, key, peer);
        }
    }

    fn ask_peer(&self, host: &mut Host, repair: &Repair, key: &[u8], peer: SocketAddrV4) {
        let (sender, partition, epoch, (logged, released)) =
            (host.config.node, self.id(), self.membership.epoch, repair.asked);
        let request = RepairRequest { sender, partition, epoch, logged, released, key };
        host.outbox.send(peer, |out| request.encode(out));
    }

    /// Another member asks for a key that it cannot read.
    pub(crate) fn on_repair_request(&mut self, host: &mut Host, request: &RepairRequest<'_>) {
        let holds_everything = self.membership.standing == Standing::Consistent;
        if !holds_everything || self.is_behind(request.logged, request.released) {
            host.counters.dropped += 1;
            return;
        }
        let asker = (self.membership.epoch, request.sender, (request.logged, request.released));
        self.read_for(host, asker, request.key);
    }

    fn read_for(&mut self, host: &mut Host, (epoch, to, asked): Asker, key: &[u8]) {
        let token = host.read(self.id(), key);
        let read = PendingRead::Repair { epoch, to, asked, key: key.into() };
        self.waits.read(token, read);
    }

    /// The engine has read a key that another member asked for.
    pub(crate) fn on_repair_read(
        &mut self,
        host: &mut Host,
        now: Now,
        (epoch, to, asked): Asker,
        key: &[u8],
        state: KeyState<'_>,
    ) {
        if epoch != self.membership.epoch {
            return;
        }
        if state == KeyState::Corrupt {
            self.begin_repair(host, now, key);
        }
        let (sender, partition, through) = (host.config.node, self.id(), self.sequence.logged());
        let reply = RepairReply { sender, partition, epoch, asked, through, key, state };
        if to == host.config.node {
            return self.on_repair_reply(host, now, &reply);
        }
        let Some(address) = self.membership.address(to) else { return };
        let told = RepairReply { state: state.told_of(key), ..reply };
        host.outbox.send(address, |out| told.encode(out));
    }

    /// Another member answers with its entry of a key.
    pub(crate) fn on_repair_reply(&mut self, host: &mut Host, now: Now, reply: &RepairReply<'_>) {
        let Some(repair) = self.repairs.get_mut(reply.key) else { return };
        if repair.asked != reply.asked {
            return;
        }
        let offer = match reply.state {
            KeyState::Stored(stored) => {
                let entry = Entry::decode(stored).expect("checked when it was decoded");
                // A tombstone counts like an absent key, because other members may have dropped it.
                let is_counted = repair.votes.is_none() || entry.value.is_some();
                Offer { needs: entry.index, entry: is_counted.then(|| stored.into()) }
            }
            KeyState::Absent => Offer { needs: reply.through, entry: None },
            // The next sweep asks another member.
            KeyState::Corrupt => return,
        };
        match &mut repair.votes {
            None => {
                self.repairs.offer(reply.key, offer);
                self.install_offer(host, now, reply.key);
            }
            Some(votes) => {
                votes.insert(reply.sender, offer);
                self.count_votes(host, now, reply.key);
            }
        }
    }

    /// Once all members have voted, the majority's entry wins; in a tie, the primary's.
    fn count_votes(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        let (me, primary) = (host.config.node, self.membership.primary);
        let judges = self.membership.judges(me).count() + 1;
        let Some(repair) = self.repairs.get_mut(key) else { return };
        match repair.outvoted(me, judges, primary) {
            None => {}
            // Not while an op locks the key: it would be decided on another state than the one
            // voted on.
            Some(Vote::Outvoted(best)) if !self.locks.is_locked(key) => {
                host.count_differing(self.membership.partition, self.membership.epoch);
                self.repairs.offer(key, best);
                self.install_offer(host, now, key);
            }
            Some(_) => {
                self.repairs.end(key);
            }
        }
    }

    /// Installs the entry that was offered for a key, once the log has reached the decision that it
    /// needs.
    fn install_offer(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        let Some(offer) = self.repairs.take_offer(key, self.sequence.logged()) else { return };
        match offer.entry {
            Some(entry) => {
                let entry = Entry::decode(&entry).expect("checked when it was decoded");
                self.contents.store(host, key, &entry);
            }
            None => self.contents.remove(host, key),
        }
        self.finish_repair(host, now, key);
        self.decide_key(host, now, key);
    }

    /// A key was written, which ends its repair.
    pub(crate) fn finish_repair(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        if let Some(waiting) = self.repairs.end(key) {
            host.count_repaired(self.id(), self.membership.epoch);
            self.serve_gets(host, now, waiting, key);
        }
    }

    /// Repeats requests that are overdue. Returns whether repairs are left.
    pub(crate) fn sweep_repairs(&mut self, host: &mut Host, now: Now) -> bool {
        let resend_ns = host.config.timing.resend.as_nanos() as u64;
        for key in self.repairs.keys() {
            let repair = self.repairs.get_mut(&key).expect("listed");
            match repair.next_step(now, resend_ns) {
                Step::Drop => {
                    self.repairs.end(&key);
                }
                Step::Install => self.install_offer(host, now, &key),
                Step::Ask => {
                    let repair = repair.clone();
                    self.ask_for(host, &repair, &key);
                }
                Step::Wait => {}
            }
        }
        !self.repairs.is_empty()
    }
}
