//! A value that the disk has damaged (docs/FAULTS.md row 10) is got back from another member, and meanwhile served by nobody who lacks it.
//!
//! ```text
//!  member (cannot read k)                 another consistent member
//!    │──RepairRequest(k, logged, released)──▶│ only if it has logged and released as much
//!    │                                       │ reads k in its own engine
//!    │◀─RepairReply(k, through, entry)───────│
//!    │ installs it once it has logged `through` itself
//! ```
//!
//! A key of which members have different entries (`compare`) takes the same way: then all of them are asked, this one too, and what most
//! have is installed.
//!
//! Gets of k are passed on to the primary; at the primary they wait, as does the evaluation of its next op.
//!
//! Why what arrives may be installed:
//! * *It is not too old.* An engine holds the effects of decisions up to `logged` (uncontended) and `released` (contended), and two
//!   members' decisions are prefixes of one sequence. Who has logged and released at least as much as the asker had when it found the
//!   damage has every effect that was lost; and once the asker has applied a later effect to k, the damage is gone and the repair over.
//! * *It may be too new, and that shows nowhere.* A later effect is of an op that the asker has forced (R1) and not yet seen take effect,
//!   so k is locked: a secondary answers no get of it. When the decisions come, the asker applies them once more: they are blind writes.
//!   A primary's peers are never ahead of it.
//! * *The engine does not get ahead of the log.* Else the asker, restarted and made primary, could evaluate an op on its own result. So
//!   the state waits until the asker has logged every decision that can be in it.

use crate::config::{REPAIRS_MAX, WAITING_GETS_MAX};
use crate::get::WaitingGet;
use crate::partition::{Latest, Partition};
use crate::waits::PendingRead;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_node::{Host, Standing};
use nicekv_wire::control::MemberState;
use nicekv_wire::recovery::Entry;
use nicekv_wire::repair::{KeyState, RepairReply, RepairRequest};
use nicekv_wire::{Epoch, NodeId, Now};

/// A vote that so many requests have not brought to an end is given up.
const VOTE_TRIES_MAX: u32 = 6;
/// The time between two requests doubles at most this often.
const DOUBLINGS_MAX: u32 = 5;

/// Damaged keys, of which at most [`REPAIRS_MAX`] are being repaired; others are found again when they are read again.
pub(crate) type Repairs = BTreeMap<Box<[u8]>, Repair>;

/// The repair of a key.
#[derive(Clone)]
pub(crate) struct Repair {
    /// `logged` and `released` when the damage was found.
    asked: (u64, u64),
    asked_ns: u64,
    tries: u32,
    /// Of a key that is not damaged, but differs: what the members have, this one included.
    votes: Option<BTreeMap<NodeId, Offer>>,
    offer: Option<Offer>,
    /// Primary: gets of the key.
    waiting: Vec<WaitingGet>,
}

/// The state of a key at a member.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Offer {
    /// To be logged here before it is installed.
    needs: u64,
    entry: Option<Box<[u8]>>,
}

impl Partition {
    /// The value for a get is damaged.
    pub(crate) fn on_get_corrupt(&mut self, host: &mut Host, now: Now, get: WaitingGet, key: &[u8]) {
        self.begin_repair(host, now, key);
        if self.membership.standing.serves() && !self.is_primary() {
            return self.forward_get(host, get, key);
        }
        match self.repairs.get_mut(key) {
            Some(repair) if repair.waiting.len() < WAITING_GETS_MAX => repair.waiting.push(get),
            _ => host.counters.dropped += 1,
        }
    }

    /// Primary: the state that the next op of a key is to be evaluated on is damaged.
    pub(crate) fn on_state_corrupt(&mut self, host: &mut Host, now: Now, token: u64, key: &[u8]) {
        if let Some(state) = self.keys.get_mut(key)
            && matches!(state.latest, Latest::Reading { token: newest } if newest == token)
        {
            state.latest = Latest::Unknown;
            self.begin_repair(host, now, key);
        }
    }

    /// Asks for a key, if that is not under way.
    fn begin_repair(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        if self.repairs.contains_key(key) {
            return;
        }
        host.counters.corrupt += 1;
        if !self.membership.standing.serves() || self.repairs.len() >= REPAIRS_MAX {
            return;
        }
        self.add_repair(host, now, key, None);
    }

    fn add_repair(&mut self, host: &mut Host, now: Now, key: &[u8], votes: Option<BTreeMap<NodeId, Offer>>) {
        let (asked, asked_ns) = ((self.logged, self.released), now.boot_ns);
        let repair = Repair { asked, asked_ns, tries: 0, votes, offer: None, waiting: Vec::new() };
        self.ask_for(host, &repair, key);
        self.repairs.insert(key.into(), repair);
        host.arm_sweep(now);
    }

    /// Members seem to have different entries of a key: asks all what they have, this one too.
    pub(crate) fn begin_vote(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        if self.repairs.len() < REPAIRS_MAX && !self.repairs.contains_key(key) {
            self.add_repair(host, now, key, Some(BTreeMap::new()));
        }
    }

    /// A scan has found these keys damaged.
    pub(crate) fn begin_repairs(&mut self, host: &mut Host, now: Now, keys: &[Vec<u8>]) {
        for key in keys {
            self.begin_repair(host, now, key);
        }
    }

    /// Whom to ask at the `tries`-th time: the primary, then the other members that hold everything.
    fn repair_peer(&self, host: &Host, tries: u32) -> Option<SocketAddrV4> {
        let me = host.config.node;
        let mut peers: Vec<_> = (self.membership.members.iter())
            .filter(|member| member.node != me && member.state == MemberState::Consistent && !member.handoff)
            .collect();
        peers.sort_by_key(|member| member.node != self.membership.primary);
        peers.get(tries as usize % peers.len().max(1)).map(|member| member.address)
    }

    fn ask_for(&mut self, host: &mut Host, repair: &Repair, key: &[u8]) {
        if let Some(votes) = &repair.votes {
            let silent: Vec<_> =
                self.judges(host.config.node).filter(|(node, _)| !votes.contains_key(node)).collect();
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

    /// A member cannot read a key.
    pub(crate) fn on_repair_request(&mut self, host: &mut Host, now: Now, request: &RepairRequest<'_>) {
        self.learn_released(host, now, request.released);
        let holds_everything = self.membership.standing == Standing::Consistent;
        if !holds_everything || self.logged < request.logged || self.released < request.released {
            host.counters.dropped += 1;
            return;
        }
        let asker = (self.membership.epoch, request.sender, (request.logged, request.released));
        self.read_for(host, asker, request.key);
    }

    /// Another member says what all hold. The primary may have told nobody yet, if it was uncontended.
    pub(crate) fn learn_released(&mut self, host: &mut Host, now: Now, released: u64) {
        if !self.is_primary() && released > self.released {
            self.release(host, now, released);
        }
    }

    fn read_for(&mut self, host: &mut Host, (epoch, to, asked): (Epoch, NodeId, (u64, u64)), key: &[u8]) {
        let token = host.read(self.id(), key);
        let read = PendingRead::Repair { epoch, to, asked, key: key.into() };
        self.waits.reads.push_back((token, read));
    }

    /// The key that another member cannot read has been read here.
    pub(crate) fn on_repair_read(
        &mut self,
        host: &mut Host,
        now: Now,
        (epoch, to, asked): (Epoch, NodeId, (u64, u64)),
        key: &[u8],
        state: KeyState<'_>,
    ) {
        if epoch != self.membership.epoch {
            return;
        }
        if state == KeyState::Corrupt {
            self.begin_repair(host, now, key);
        }
        let (sender, partition, through) = (host.config.node, self.id(), self.logged);
        let reply = RepairReply { sender, partition, epoch, asked, through, key, state };
        if to == host.config.node {
            return self.on_repair_reply(host, now, &reply);
        }
        let Some(address) = self.membership.address(to) else { return };
        host.outbox.send(address, |out| reply.encode(out));
    }

    /// Another member tells what it has of a damaged key.
    pub(crate) fn on_repair_reply(&mut self, host: &mut Host, now: Now, reply: &RepairReply<'_>) {
        let Some(repair) = self.repairs.get_mut(reply.key) else { return };
        if repair.asked != reply.asked {
            return;
        }
        let offer = match reply.state {
            KeyState::Stored(stored) => {
                let entry = Entry::decode(stored).expect("checked when it was decoded");
                // A tombstone may be gone elsewhere.
                let is_counted = repair.votes.is_none() || entry.value.is_some();
                Offer { needs: entry.index, entry: is_counted.then(|| stored.into()) }
            }
            KeyState::Absent => Offer { needs: reply.through, entry: None },
            // The next one is asked by the next sweep.
            KeyState::Corrupt => return,
        };
        match &mut repair.votes {
            None => {
                repair.offer = Some(offer);
                self.install_offer(host, now, reply.key);
            }
            Some(votes) => {
                votes.insert(reply.sender, offer);
                self.count_votes(host, now, reply.key);
            }
        }
    }

    /// When all have voted: what most have stands; of equally many, what the primary has.
    fn count_votes(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        let me = host.config.node;
        let judges = self.judges(me).count() + 1;
        let Some(votes) = self.repairs.get(key).and_then(|repair| repair.votes.as_ref()) else { return };
        let Some(mine) = votes.get(&me).filter(|_| votes.len() >= judges) else { return };
        let alike = |offer: &Offer| votes.values().filter(|other| other.entry == offer.entry).count();
        let best = votes.iter().max_by_key(|(node, offer)| (alike(offer), **node == self.membership.primary));
        let (_, best) = best.expect("this member has voted");
        // What is under way on the key is decided on another state than was voted of.
        let stands = best.entry == mine.entry || self.keys.contains_key(key);
        let best = best.clone();
        if stands {
            self.repairs.remove(key);
            return;
        }
        host.counters.differing += 1;
        let repair = self.repairs.get_mut(key).expect("as before");
        repair.offer = Some(best);
        self.install_offer(host, now, key);
    }

    /// Installs what was offered for a key, if the log has got so far.
    fn install_offer(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        let logged = self.logged;
        let offer = self.repairs.get_mut(key).and_then(|repair| repair.offer.take_if(|o| o.needs <= logged));
        let Some(offer) = offer else { return };
        match offer.entry {
            Some(entry) => {
                let entry = Entry::decode(&entry).expect("checked when it was decoded");
                self.store(host, key, &entry);
            }
            None => {
                self.agenda.remove(key);
                host.storage.remove(self.id(), key);
            }
        }
        self.finish_repair(host, now, key);
        self.decide_key(host, now, key);
    }

    /// A key has been written: if it was damaged, it is whole again.
    pub(crate) fn finish_repair(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        if let Some(repair) = self.repairs.remove(key) {
            host.counters.repaired += 1;
            self.serve_gets(host, now, repair.waiting, key);
        }
    }

    /// Asks again; whether there is anything left to repair.
    pub(crate) fn sweep_repairs(&mut self, host: &mut Host, now: Now) -> bool {
        let resend_ns = host.config.timing.resend.as_nanos() as u64;
        let keys: Vec<Box<[u8]>> = self.repairs.keys().cloned().collect();
        for key in keys {
            let repair = self.repairs.get_mut(&key).expect("listed");
            if repair.votes.is_some() && repair.tries >= VOTE_TRIES_MAX {
                // Somebody is silent: the next pass finds it again.
                self.repairs.remove(&key);
            } else if repair.offer.is_some() {
                self.install_offer(host, now, &key);
            } else if now.boot_ns >= repair.asked_ns + (resend_ns << repair.tries.min(DOUBLINGS_MAX)) {
                repair.asked_ns = now.boot_ns;
                repair.tries += 1;
                let repair = repair.clone();
                self.ask_for(host, &repair, &key);
            }
        }
        !self.repairs.is_empty()
    }
}
