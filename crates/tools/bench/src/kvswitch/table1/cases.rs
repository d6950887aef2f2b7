//! Kinds of packets, and how long the programs take for each.

use crate::error::{BenchError, Result};
use crate::kvswitch::testbed::{Ring, Sender, Testbed};
use nicekv_proto::hot::{HotConfirm, HotLease, HotValue, Stamp};
use nicekv_proto::route::leave_room_for_stamp;
use nicekv_proto::{
    ClientId, Condition, Datagram, Form, Get, Header, KeyDigest, KeyspaceId, OpId, Operation, Reply, Status,
    Update,
};
use nicekv_runtime::now;
use nicekv_switch::{Backend as _, Counter, HOT_CAPACITY, HOT_VALUES_MAX, HostId, HotConfig, HotEntry};
use nicekv_switch_xdp::{Hook, KernelSwitch, count_runs};

/// Servers of the switch.
const SERVERS: u16 = 4;
/// Sizes of the paper's items (KVSwitch §5.1).
const KEY: &[u8; 16] = b"sixteen bytes, I";
const VALUE: [u8; 128] = [7; 128];
/// A keyspace without hot entries, and one that spreads its hot keys.
const PLAIN: KeyspaceId = KeyspaceId(5);
const SPREAD: KeyspaceId = KeyspaceId::DEFAULT;
/// Packets per block, and number of blocks of a quick run and of a full one.
const BLOCK: usize = 1_000;
const BLOCKS: [usize; 2] = [30, 200];
/// Longer than any run of this bench.
const LEASE_NS: u64 = 600_000_000_000;
const SERIAL: u64 = 1;

/// Entries of the table: keys with copies, then keys that are only watched, then keys with a value
/// in the switch.
pub(super) const ENTRIES: usize = HOT_CAPACITY;
const KEPT: usize = HOT_VALUES_MAX;
const COPIED: usize = (ENTRIES - KEPT) / 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Plain,
    PlainRoom,
    Watched,
    WatchedRoom,
    Candidate,
    CandidateRoom,
    Copied,
    PlainPut,
    CopiedPut,
    Kept,
}

impl Case {
    pub(super) const ALL: [Self; 10] = [
        Self::Plain,
        Self::PlainRoom,
        Self::Watched,
        Self::WatchedRoom,
        Self::Candidate,
        Self::CandidateRoom,
        Self::Copied,
        Self::PlainPut,
        Self::CopiedPut,
        Self::Kept,
    ];

    /// The first of the keys of the case, and how many there are.
    fn keys(self) -> (usize, usize) {
        match self {
            Self::Watched | Self::WatchedRoom => (COPIED, ENTRIES - KEPT - COPIED),
            Self::Kept => (ENTRIES - KEPT, KEPT),
            Self::Candidate | Self::CandidateRoom => (ENTRIES, COPIED),
            // Not the keys of gets: a put invalidates copies.
            Self::CopiedPut => (COPIED / 2, COPIED / 2),
            _ => (0, COPIED / 2),
        }
    }

    fn has_room(self) -> bool {
        !matches!(self, Self::Plain | Self::Watched | Self::Candidate | Self::PlainPut)
    }

    fn is_put(self) -> bool {
        matches!(self, Self::PlainPut | Self::CopiedPut)
    }

    fn payload(self, digest: KeyDigest) -> Vec<u8> {
        let keyspace = match self {
            Self::Plain | Self::PlainRoom | Self::PlainPut => PLAIN,
            _ => SPREAD,
        };
        let (op, reply_to, mut payload) = (OpId { client: ClientId(1), sequence: 1 }, None, Vec::new());
        if self.is_put() {
            let (watermark, condition, return_old) = (0, Condition::Always, false);
            let operation = Operation::Delete;
            let key = KEY;
            Update { keyspace, op, digest, reply_to, watermark, condition, return_old, operation, key }
                .encode(&mut payload);
        } else {
            // As long as a reply, since gets of kept values must have room for it.
            let padding = reply_body().len();
            Get { keyspace, op, digest, reply_to, forwarded: None, key: KEY, padding }.encode(&mut payload);
        }
        if self.has_room() {
            leave_room_for_stamp(&mut payload);
        }
        payload
    }
}

/// How keys are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Always the same key: the time of the program alone.
    One,
    /// The n-th key in proportion to 1/n, as hot keys are requested.
    Skewed,
}

impl Asked {
    pub(super) const ALL: [Self; 2] = [Self::One, Self::Skewed];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::One => "the same key",
            Self::Skewed => "the n-th key by 1/n",
        }
    }

    /// Draws one of `keys` keys.
    fn key(self, random: &mut fastrand::Rng, keys: usize) -> usize {
        match self {
            Self::One => 77,
            Self::Skewed => (keys as f64).powf(random.f64()) as usize - 1,
        }
    }
}

fn digest(number: usize) -> KeyDigest {
    KeyDigest((number as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes())
}

/// A reply of a get without its header.
fn reply_body() -> Vec<u8> {
    let reply = |integer| {
        let (op, mut bytes) = (OpId::NONE, Vec::new());
        let version = OpId { client: ClientId(1), sequence: 1 };
        Reply {
            form: Form::Plain,
            op,
            status: Status::Ok,
            version,
            expiry_ms: 0,
            integer,
            value: Some(&VALUE),
        }
        .encode(&mut bytes);
        bytes
    };
    // It contains its length.
    let bytes = reply(0).len() as i64;
    reply(bytes).split_off(Header::BYTES)
}

/// A switch with a full table, whose run time the kernel counts.
pub(super) struct Times {
    testbed: Testbed,
    blocks: usize,
    random: fastrand::Rng,
}

impl Times {
    /// Moves the calling thread to another network namespace.
    pub(super) fn new(hook: Hook, quick: bool) -> Result<Self> {
        let testbed = Testbed::new(hook, SERVERS)?;
        let mut times =
            Self { testbed, blocks: BLOCKS[usize::from(!quick)], random: fastrand::Rng::with_seed(1) };
        times.fill()?;
        Ok(times)
    }

    pub(super) fn switch(&self) -> &KernelSwitch {
        &self.testbed.switch
    }

    fn fill(&mut self) -> Result<()> {
        let config = HotConfig { keyspaces: Vec::from([SPREAD.0]), ..HotConfig::default() };
        self.testbed.switch.set_hot(&config)?;
        let entry = |number: usize| HotEntry {
            keyspace: SPREAD.0,
            digest: digest(number).0,
            instance: instance(number),
            owner_turns: 1,
            holders: if number < COPIED { Vec::from([HostId(2), HostId(3)]) } else { Vec::new() },
            in_switch: number >= ENTRIES - KEPT,
        };
        let entries: Vec<HotEntry> = (0..ENTRIES).map(entry).collect();
        self.testbed.switch.change_hot(false, &[], &entries)?;
        for number in 0..COPIED {
            let stamp = Stamp { instance: instance(number), seen: 1 };
            let mut message = Vec::new();
            HotConfirm { keyspace: SPREAD, digest: digest(number), stamp }.encode(&mut message);
            for server in [1, 2] {
                self.testbed.feed(Sender::Server(server), Ring::Unicast, &digest(number), &message)?;
            }
        }
        let confirmed = self.count(Counter::HotConfirmed)?;
        if confirmed != 2 * COPIED as u64 {
            return Err(BenchError::failed("the switch has not received all confirmations"));
        }
        self.keep()
    }

    /// Puts values into the switch, with a lease of their server.
    fn keep(&mut self) -> Result<()> {
        let first = digest(ENTRIES - KEPT);
        let lease =
            |nonce, until_ns| HotLease { keyspace: SPREAD, digest: first, nonce, until_ns, serial: SERIAL };
        let mut message = Vec::new();
        lease(0, 0).encode(&mut message);
        let fed = self.testbed.feed(Sender::Server(0), Ring::Unicast, &first, &message)?;
        let Ok((_, Datagram::HotLeased(leased))) = Datagram::decode(self.testbed.out(fed)) else {
            return Err(BenchError::failed("the switch does not answer the request of a lease"));
        };
        lease(leased.nonce, now().boot_ns + LEASE_NS).encode(&mut message);
        self.testbed.feed(Sender::Server(0), Ring::Unicast, &first, &message)?;
        let reply = reply_body();
        for number in ENTRIES - KEPT..ENTRIES {
            let (stamp, digest) = (Stamp { instance: instance(number), seen: 1 }, digest(number));
            HotValue { keyspace: SPREAD, digest, stamp, serial: SERIAL, key: KEY, reply: &reply }
                .encode(&mut message);
            self.testbed.feed(Sender::Server(0), Ring::Unicast, &digest, &message)?;
        }
        Ok(())
    }

    fn count(&self, counter: Counter) -> Result<u64> {
        Ok(self.testbed.switch.counters()?.get(counter))
    }

    /// Nanoseconds of a run of the program, by case and block.
    pub(super) fn measure(&mut self, asked: Asked) -> Result<Vec<Vec<f64>>> {
        let _counting = count_runs()?;
        let mut times = vec![Vec::new(); Case::ALL.len()];
        for _ in 0..self.blocks {
            for case in Case::ALL {
                times[case as usize].push(self.block(case, asked)?);
            }
        }
        // Checks that gets have met the entries of their cases.
        for counter in [Counter::HotRedirected, Counter::HotAnswered] {
            if self.count(counter)? < self.blocks as u64 * BLOCK as u64 / 2 {
                return Err(BenchError::failed(
                    "the switch has sent too few gets to holders, or answered too few",
                ));
            }
        }
        Ok(times)
    }

    fn block(&mut self, case: Case, asked: Asked) -> Result<f64> {
        let (first, keys) = case.keys();
        let ring = if case.is_put() { Ring::Multicast } else { Ring::Unicast };
        // Drawn before, so that drawing does not fill the cache.
        let drawn: Vec<KeyDigest> =
            (0..BLOCK).map(|_| digest(first + asked.key(&mut self.random, keys))).collect();
        let mut payload = case.payload(drawn[0]);
        let before = self.testbed.switch.runs();
        for digest in drawn {
            set_digest(&mut payload, &digest);
            self.testbed.feed(Sender::Client, ring, &digest, &payload)?;
        }
        let after = self.testbed.switch.runs();
        Ok((after.time - before.time).as_nanos() as f64 / (after.count - before.count) as f64)
    }
}

fn instance(number: usize) -> u64 {
    number as u64 + 1
}

fn set_digest(payload: &mut [u8], digest: &KeyDigest) {
    let at = std::mem::offset_of!(nicekv_proto::HeaderLayout, digest);
    payload[at..][..digest.0.len()].copy_from_slice(&digest.0);
}
