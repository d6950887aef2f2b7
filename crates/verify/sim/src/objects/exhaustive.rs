//! Every interleaving of two users, the names of their objects, two rounds of garbage collection
//! and a restart of a target, on one chunk (P6 to P9).
//!
//! The target is the real core. A put is one step, since only its end matters here.

use nicekv_objects::reservation::Config;
use nicekv_objects::testing::PutReply;
use nicekv_objects::{Group, Map, Storage, StorageDone, Target, TargetConfig, chunk_id};
use nicekv_proto::NodeId;
use nicekv_proto::chunk::{ChunkId, MapVersion, Round};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

const BYTES: &[u8] = b"the chunk that both objects are";
const USERS: usize = 2;
/// Puts by each user.
const PUTS_MAX: u8 = 2;
const ROUND_FIRST: u64 = 1;
const ROUND_LAST: u64 = 4;
const RESTARTS_MAX: u8 = 1;

/// The state of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum User {
    /// Remaining puts.
    Idle { puts: u8 },
    /// The chunk is stored, with this stamp; the manifest must still be put.
    Has { stamp: Round, puts: u8 },
    /// The object can be read.
    Live { puts: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Put(usize),
    Manifest(usize),
    Delete(usize),
    NextRound,
    Tell,
    Adopt(usize),
    /// The target lists the names of a partition.
    List(usize),
    Sweep,
    Restart,
}

#[derive(Clone)]
struct State {
    target: Target,
    is_durable: bool,
    round: Round,
    users: [User; USERS],
    /// The round that each name has adopted. Each is in a partition of its own.
    adopted: [Round; USERS],
    /// Partitions whose names the target has listed in this round.
    listed: (Round, [bool; USERS]),
    restarts: u8,
}

/// The result of an exploration.
#[derive(Clone, Debug)]
pub struct Explored {
    /// Number of different states.
    pub states: usize,
    /// The violation, with the steps that lead to it.
    pub violation: Option<String>,
}

pub fn explore() -> Explored {
    let mut seen: HashSet<u64> = HashSet::new();
    let mut stack = vec![(State::new(), Vec::new())];
    while let Some((state, steps)) = stack.pop() {
        if !seen.insert(state.fingerprint()) {
            continue;
        }
        if !state.is_durable && state.users.iter().any(|user| matches!(user, User::Live { .. })) {
            let violation = Some(format!("an object's chunk is gone after {steps:?}"));
            return Explored { states: seen.len(), violation };
        }
        for step in state.steps() {
            let mut next = state.clone();
            next.take(step);
            let mut steps = steps.clone();
            steps.push(step);
            stack.push((next, steps));
        }
    }
    Explored { states: seen.len(), violation: None }
}

impl State {
    fn new() -> Self {
        let mut state = Self {
            target: start(1, None),
            is_durable: false,
            round: Round(ROUND_FIRST),
            users: [User::Idle { puts: PUTS_MAX }; USERS],
            adopted: [Round(0); USERS],
            listed: (Round(0), [false; USERS]),
            restarts: RESTARTS_MAX,
        };
        state.target.set_round(Round(ROUND_FIRST));
        state
    }

    /// Whether the target may list names: all names have adopted the round, and the target has
    /// learned of it.
    fn may_list(&self) -> bool {
        let is_adopted = self.adopted.iter().all(|adopted| *adopted == self.round);
        is_adopted && self.target.round() == Some(self.round)
    }

    /// The partitions that are listed in the current round.
    fn listed_now(&self) -> [bool; USERS] {
        let (round, listed) = self.listed;
        if round == self.round { listed } else { [false; USERS] }
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.target.collection().hash(&mut hasher);
        (self.is_durable, self.round, self.users, self.adopted, self.listed, self.restarts).hash(&mut hasher);
        hasher.finish()
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for user in 0..USERS {
            match self.users[user] {
                User::Idle { puts } if puts > 0 && self.target.round().is_some() => {
                    steps.push(Step::Put(user));
                }
                User::Idle { .. } => {}
                User::Has { .. } => steps.push(Step::Manifest(user)),
                User::Live { .. } => steps.push(Step::Delete(user)),
            }
            if self.adopted[user] < self.round {
                steps.push(Step::Adopt(user));
            }
            if self.may_list() && !self.listed_now()[user] {
                steps.push(Step::List(user));
            }
        }
        if self.listed_now().iter().all(|is_listed| *is_listed) {
            steps.push(Step::Sweep);
        }
        if self.round.0 < ROUND_LAST {
            steps.push(Step::NextRound);
        }
        steps.push(Step::Tell);
        if self.restarts > 0 {
            steps.push(Step::Restart);
        }
        steps
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Put(user) => {
                let User::Idle { puts } = self.users[user] else { unreachable!("it is idle") };
                let stamp = self.put();
                self.users[user] = User::Has { stamp, puts: puts - 1 };
            }
            Step::Manifest(user) => {
                let User::Has { stamp, puts } = self.users[user] else { unreachable!("it has one") };
                let is_taken = stamp.0.saturating_add(1) >= self.adopted[user].0;
                self.users[user] = if is_taken { User::Live { puts } } else { User::Idle { puts } };
            }
            Step::Delete(user) => {
                let User::Live { puts } = self.users[user] else { unreachable!("it is live") };
                self.users[user] = User::Idle { puts };
            }
            Step::NextRound => self.round = Round(self.round.0 + 1),
            Step::Tell => self.target.set_round(self.round),
            Step::Adopt(user) => self.adopted[user] = self.round,
            Step::List(user) => {
                let mut listed = self.listed_now();
                let is_live = matches!(self.users[user], User::Live { .. });
                let ids: &[ChunkId] = if is_live { &[chunk_id(BYTES)] } else { &[] };
                if self.target.mark(self.round, ids) {
                    listed[user] = true;
                    self.listed = (self.round, listed);
                }
            }
            Step::Sweep => while !self.target.sweep(self.round) {},
            Step::Restart => {
                self.restarts -= 1;
                self.listed = (Round(0), [false; USERS]);
                self.target = start(2, self.is_durable.then(|| chunk_id(BYTES)));
            }
        }
        while let Some(request) = self.target.poll_storage() {
            self.is_durable &= !matches!(request, Storage::Remove { .. });
        }
    }

    /// Stores the chunk, unless it is stored already. Returns its stamp.
    fn put(&mut self) -> Round {
        match self.target.put_at_once(chunk_id(BYTES), BYTES) {
            PutReply::Stored(stamp) => stamp,
            PutReply::Arrived(op) => {
                while self.target.poll_storage().is_some() {}
                self.is_durable = true;
                let end = nicekv_objects::End::Whole;
                self.target.handle_storage(0, StorageDone::Finished { op, end });
                self.target.last_stamp()
            }
        }
    }
}

fn start(process: u64, held: Option<ChunkId>) -> Target {
    let config = TargetConfig {
        node: NodeId(0),
        process,
        reservation: Config::UNICAST,
        disk_bytes_per_second: 1 << 30,
        secret: [7; 32],
        maintenance: None,
    };
    let on_disk = held.map(|id| (id, BYTES.len() as u32, vec![NodeId(0)]));
    let mut target = Target::new(config, on_disk).expect("the parameters can be");
    let group = Group::new(&[NodeId(0)]).expect("there is one");
    target.set_map(0, Map::new(MapVersion(1), vec![group]).expect("it is one"));
    target.set_free(1 << 30);
    target
}
