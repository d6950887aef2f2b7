//! Repairs under way: keys that cannot be read here or that differ between members, and the answers
//! of other members.

use super::locks::WaitingGet;
use crate::modes::bounds::{REPAIRS_MAX, WAITING_GETS_MAX};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use nicekv_proto::{NodeId, Now};

/// A vote without a result after this many requests is dropped.
const VOTE_TRIES_MAX: u32 = 6;
/// How many times the interval between two requests doubles at most.
const DOUBLINGS_MAX: u32 = 5;

/// The repair of a key.
#[derive(Clone)]
pub(crate) struct Repair {
    /// `logged` and `released` at the time when the damage was found.
    pub(crate) asked: (u64, u64),
    asked_ns: u64,
    pub(crate) tries: u32,
    /// `Some` for a vote, that is, for a key that differs instead of being damaged: the entries of
    /// the members that have answered, this one included.
    pub(crate) votes: Option<BTreeMap<NodeId, Offer>>,
    offer: Option<Offer>,
    /// Primary: gets that wait for the repair.
    waiting: Vec<WaitingGet>,
}

/// The state of a key at one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The entry may be installed here once this decision is logged here.
    pub(crate) needs: u64,
    pub(crate) entry: Option<Box<[u8]>>,
}

/// The task of a sweep for a repair.
pub(crate) enum Step {
    /// Drop the vote: some member is silent. The next pass of the scrub finds the key again.
    Drop,
    /// Install the offered entry.
    Install,
    /// Send the request again.
    Ask,
    Wait,
}

impl Repair {
    /// The next step. Requests are repeated after `resend_ns`, with backoff.
    pub(crate) fn next_step(&mut self, now: Now, resend_ns: u64) -> Step {
        if self.votes.is_some() && self.tries >= VOTE_TRIES_MAX {
            Step::Drop
        } else if self.offer.is_some() {
            Step::Install
        } else if now.boot_ns >= self.asked_ns + (resend_ns << self.tries.min(DOUBLINGS_MAX)) {
            (self.asked_ns, self.tries) = (now.boot_ns, self.tries + 1);
            Step::Ask
        } else {
            Step::Wait
        }
    }

    /// The result of a vote: does `me` have the majority's entry (in a tie, the primary's)? `None`
    /// until `judges` members have voted.
    pub(crate) fn outvoted(&self, me: NodeId, judges: usize, primary: NodeId) -> Option<Vote> {
        let votes = self.votes.as_ref().filter(|votes| votes.len() >= judges)?;
        let mine = votes.get(&me)?;
        let alike = |offer: &Offer| votes.values().filter(|other| other.entry == offer.entry).count();
        let (_, best) = votes.iter().max_by_key(|(node, offer)| (alike(offer), **node == primary))?;
        Some(if best.entry == mine.entry { Vote::Agreed } else { Vote::Outvoted(best.clone()) })
    }
}

/// The result of a vote, for this member.
pub(crate) enum Vote {
    /// This member has the majority's entry.
    Agreed,
    /// The majority has this other entry.
    Outvoted(Offer),
}

/// At most [`REPAIRS_MAX`] repairs. Other damaged keys are found again when they are next read.
#[derive(Clone, Default)]
pub(crate) struct Repairs {
    by_key: BTreeMap<Box<[u8]>, Repair>,
}

impl Repairs {
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.by_key.contains_key(key)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.by_key.len() >= REPAIRS_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(crate) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Repair> {
        self.by_key.get_mut(key)
    }

    pub(crate) fn keys(&self) -> Vec<Box<[u8]>> {
        self.by_key.keys().cloned().collect()
    }

    /// Starts the repair of a key: by a vote, or by the first offer that arrives.
    pub(crate) fn begin(&mut self, now: Now, asked: (u64, u64), is_vote: bool, key: &[u8]) -> Repair {
        let votes = is_vote.then(BTreeMap::new);
        let repair =
            Repair { asked, asked_ns: now.boot_ns, tries: 0, votes, offer: None, waiting: Vec::new() };
        self.by_key.insert(key.into(), repair.clone());
        repair
    }

    /// Makes a get wait for the repair of its key. Returns whether there was room.
    pub(crate) fn wait(&mut self, get: WaitingGet, key: &[u8]) -> bool {
        match self.by_key.get_mut(key) {
            Some(repair) if repair.waiting.len() < WAITING_GETS_MAX => {
                repair.waiting.push(get);
                true
            }
            _ => false,
        }
    }

    /// Keeps an offered entry until it may be installed.
    pub(crate) fn offer(&mut self, key: &[u8], offer: Offer) {
        if let Some(repair) = self.by_key.get_mut(key) {
            repair.offer = Some(offer);
        }
    }

    /// Takes the offer for a key, if the decisions in the log up to `logged` suffice to install it.
    pub(crate) fn take_offer(&mut self, key: &[u8], logged: u64) -> Option<Offer> {
        self.by_key.get_mut(key)?.offer.take_if(|offer| offer.needs <= logged)
    }

    /// Ends the repair of a key. Returns the gets that have waited.
    pub(crate) fn end(&mut self, key: &[u8]) -> Option<Vec<WaitingGet>> {
        self.by_key.remove(key).map(|repair| repair.waiting)
    }

    /// Drops all repairs when a new epoch begins.
    pub(crate) fn clear(&mut self) {
        self.by_key.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::{ClientId, OpId};

    fn at(boot_ns: u64) -> Now {
        Now { boot_ns, unix_ms: 0 }
    }

    fn offer(needs: u64, entry: &str) -> Offer {
        Offer { needs, entry: Some(entry.as_bytes().into()) }
    }

    fn get(sequence: u64) -> WaitingGet {
        WaitingGet {
            op: OpId { client: ClientId(1), sequence },
            reply_to: "10.0.0.9:900".parse().unwrap(),
            is_judged: false,
        }
    }

    #[track_caller]
    fn check(votes: &[(u16, &str)], outvoted: Option<Option<&str>>) {
        let mut repairs = Repairs::default();
        repairs.begin(at(0), (0, 0), true, b"k");
        let repair = repairs.get_mut(b"k").unwrap();
        let cast = votes.iter().map(|(node, entry)| (NodeId(*node), offer(u64::from(*node), entry)));
        repair.votes.as_mut().unwrap().extend(cast);
        let entry = |offer: Offer| String::from_utf8(offer.entry.unwrap().into()).unwrap();
        let found = repair.outvoted(NodeId(1), 3, NodeId(2)).map(|vote| match vote {
            Vote::Agreed => None,
            Vote::Outvoted(best) => Some(entry(best)),
        });
        assert_eq!(found, outvoted.map(|best| best.map(str::to_owned)));
    }

    #[test]
    fn majority_entry_stands_and_the_primarys_in_a_tie() {
        check(&[(1, "a"), (2, "b")], None);
        check(&[(2, "b"), (3, "b"), (4, "b")], None);
        check(&[(1, "a"), (2, "b"), (3, "b")], Some(Some("b")));
        check(&[(1, "a"), (2, "b"), (3, "a")], Some(None));
        check(&[(1, "a"), (2, "b"), (3, "c")], Some(Some("b")));
    }

    #[test]
    fn repair_is_retried_and_a_vote_is_given_up() {
        let mut repairs = Repairs::default();
        repairs.begin(at(100), (3, 2), false, b"k");
        repairs.begin(at(100), (3, 2), true, b"v");
        let mut step = |key: &[u8], boot_ns| repairs.get_mut(key).unwrap().next_step(at(boot_ns), 10);
        assert!(matches!(step(b"k", 109), Step::Wait) && matches!(step(b"k", 110), Step::Ask));
        assert!(matches!(step(b"k", 129), Step::Wait) && matches!(step(b"k", 130), Step::Ask));
        let mut now_ns = 10_000;
        for _ in 0..8 {
            assert!(matches!(step(b"k", now_ns), Step::Ask));
            assert!(matches!(step(b"k", now_ns + 319), Step::Wait | Step::Ask));
            now_ns += 10_000;
        }
        assert!(matches!(step(b"k", now_ns), Step::Ask));
        assert!(
            matches!(step(b"k", now_ns + 319), Step::Wait) && matches!(step(b"k", now_ns + 320), Step::Ask)
        );
        for tries in 0..VOTE_TRIES_MAX {
            assert!(matches!(step(b"v", 1_000 * u64::from(tries + 1)), Step::Ask));
        }
        assert!(matches!(step(b"v", 9_000), Step::Drop));
        repairs.offer(b"k", offer(0, "a"));
        assert!(matches!(repairs.get_mut(b"k").unwrap().next_step(at(0), 10), Step::Install));
    }

    #[test]
    fn offer_is_taken_when_the_log_has_come_that_far() {
        let mut repairs = Repairs::default();
        assert!(repairs.is_empty() && !repairs.contains(b"k"));
        repairs.begin(at(0), (3, 2), false, b"k");
        assert!(
            !repairs.is_empty() && repairs.contains(b"k") && repairs.get_mut(b"k").unwrap().asked == (3, 2)
        );
        repairs.offer(b"k", offer(5, "a"));
        assert_eq!(repairs.take_offer(b"k", 4), None);
        assert_eq!(repairs.take_offer(b"k", 5), Some(offer(5, "a")));
        assert_eq!(repairs.take_offer(b"k", 5), None);
        assert_eq!(repairs.keys(), [b"k".as_slice().into()]);
        assert!(repairs.wait(get(1), b"k") && !repairs.wait(get(2), b"other"));
        assert_eq!(repairs.end(b"k").map(|waiting| waiting.len()), Some(1));
        assert!(repairs.end(b"k").is_none());
    }

    #[test]
    fn bounds_are_kept() {
        let mut repairs = Repairs::default();
        for number in 0..REPAIRS_MAX {
            assert!(!repairs.is_full());
            repairs.begin(at(0), (0, 0), false, &number.to_be_bytes());
        }
        assert!(repairs.is_full());
        let key = 0usize.to_be_bytes();
        let taken = (0..WAITING_GETS_MAX as u64 + 1).filter(|sequence| repairs.wait(get(*sequence), &key));
        assert_eq!(taken.count(), WAITING_GETS_MAX);
        repairs.clear();
        assert!(repairs.is_empty());
    }
}
