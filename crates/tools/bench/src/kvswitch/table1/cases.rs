//! What a packet may be, and how long programs take for it.

use super::failed;
use crate::error::Result;
use crate::kvswitch::bed::{self, Bed, Ring, Sender, refused};
use crate::workload::Random;
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
/// Of the paper's items (KVSwitch §5.1).
const KEY: &[u8; 16] = b"sixteen bytes, I";
const VALUE: [u8; 128] = [7; 128];
/// Neither spreads its hot keys nor has entries.
const PLAIN: KeyspaceId = KeyspaceId(5);
const SPREAD: KeyspaceId = KeyspaceId::DEFAULT;
/// Keys that are asked for in a block, and blocks: a quick run's, a run's.
const BLOCK: usize = 1_000;
const BLOCKS: [usize; 2] = [30, 200];
/// Longer than any run of this bench.
const LEASE_NS: u64 = 600_000_000_000;
const SERIAL: u64 = 1;

/// Entries of the table: first keys with copies, then keys that are only watched, then keys with a value in the switch.
pub(super) const ENTRIES: usize = HOT_CAPACITY;
const KEPT: usize = HOT_VALUES_MAX;
const COPIED: usize = (ENTRIES - KEPT) / 2;

/// What is put through the program.
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

    /// Of the keys of the case: the first one, and how many there are.
    fn keys(self) -> (usize, usize) {
        match self {
            Self::Watched | Self::WatchedRoom => (COPIED, ENTRIES - KEPT - COPIED),
            Self::Kept => (ENTRIES - KEPT, KEPT),
            Self::Candidate | Self::CandidateRoom => (ENTRIES, COPIED),
            // A put makes copies invalid, which gets are to find valid.
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
            // All as long as a reply, since a get of a kept value has to be.
            let padding = reply_body().len();
            Get { keyspace, op, digest, reply_to, forwarded: None, key: KEY, padding }.encode(&mut payload);
        }
        if self.has_room() {
            leave_room_for_stamp(&mut payload);
        }
        payload
    }
}

/// Which keys are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The same one: what the program itself takes.
    One,
    /// The n-th of all in proportion to 1/n, as keys are that are worth an entry.
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

    /// One of so many.
    fn key(self, random: &mut Random, keys: usize) -> usize {
        match self {
            Self::One => 77,
            Self::Skewed => (keys as f64).powf(random.fraction()) as usize - 1,
        }
    }
}

fn digest(number: usize) -> KeyDigest {
    KeyDigest((number as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes())
}

/// Of a get's reply, less its header.
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
    // It says how long it is.
    let bytes = reply(0).len() as i64;
    reply(bytes).split_off(Header::BYTES)
}

/// A switch with a full table, and the kernel's count of what it takes.
pub(super) struct Times {
    bed: Bed,
    blocks: usize,
    random: Random,
}

impl Times {
    /// Moves the calling thread to another network namespace.
    pub(super) fn new(hook: Hook, quick: bool) -> Result<Self> {
        let bed = Bed::new(hook, SERVERS)?;
        let mut times = Self { bed, blocks: BLOCKS[usize::from(!quick)], random: Random(1) };
        times.fill()?;
        Ok(times)
    }

    pub(super) fn switch(&self) -> &KernelSwitch {
        &self.bed.switch
    }

    fn fill(&mut self) -> Result<()> {
        let config = HotConfig { keyspaces: Vec::from([SPREAD.0]), ..HotConfig::default() };
        self.bed.switch.set_hot(&config).map_err(refused)?;
        let entry = |number: usize| HotEntry {
            keyspace: SPREAD.0,
            digest: digest(number).0,
            instance: instance(number),
            owner_turns: 1,
            holders: if number < COPIED { Vec::from([HostId(2), HostId(3)]) } else { Vec::new() },
            in_switch: number >= ENTRIES - KEPT,
        };
        let entries: Vec<HotEntry> = (0..ENTRIES).map(entry).collect();
        self.bed.switch.change_hot(false, &[], &entries).map_err(refused)?;
        for number in 0..COPIED {
            let stamp = Stamp { instance: instance(number), seen: 1 };
            let mut said = Vec::new();
            HotConfirm { keyspace: SPREAD, digest: digest(number), stamp }.encode(&mut said);
            for server in [1, 2] {
                self.bed.feed(Sender::Server(server), Ring::Unicast, &digest(number), &said)?;
            }
        }
        let confirmed = self.count(Counter::HotConfirmed)?;
        if confirmed != 2 * COPIED as u64 {
            return Err(failed("the switch has not heard all that holders said"));
        }
        self.keep()
    }

    /// Values of a server's keys, and its lease.
    fn keep(&mut self) -> Result<()> {
        let first = digest(ENTRIES - KEPT);
        let lease =
            |nonce, until_ns| HotLease { keyspace: SPREAD, digest: first, nonce, until_ns, serial: SERIAL };
        let mut said = Vec::new();
        lease(0, 0).encode(&mut said);
        let fed = self.bed.feed(Sender::Server(0), Ring::Unicast, &first, &said)?;
        let Ok((_, Datagram::HotLeased(leased))) = Datagram::decode(self.bed.out(fed)) else {
            return Err(failed("the switch does not say what time it is there"));
        };
        lease(leased.nonce, now().boot_ns + LEASE_NS).encode(&mut said);
        self.bed.feed(Sender::Server(0), Ring::Unicast, &first, &said)?;
        let reply = reply_body();
        for number in ENTRIES - KEPT..ENTRIES {
            let (stamp, digest) = (Stamp { instance: instance(number), seen: 1 }, digest(number));
            HotValue { keyspace: SPREAD, digest, stamp, serial: SERIAL, key: KEY, reply: &reply }
                .encode(&mut said);
            self.bed.feed(Sender::Server(0), Ring::Unicast, &digest, &said)?;
        }
        Ok(())
    }

    fn count(&self, counter: Counter) -> Result<u64> {
        Ok(self.bed.switch.counters().map_err(refused)?.get(counter))
    }

    /// Nanoseconds of a run, by cases, block by block.
    pub(super) fn measure(&mut self, asked: Asked) -> Result<Vec<Vec<f64>>> {
        let _counting = count_runs().map_err(bed::failed)?;
        let mut times = vec![Vec::new(); Case::ALL.len()];
        for _ in 0..self.blocks {
            for case in Case::ALL {
                times[case as usize].push(self.block(case, asked)?);
            }
        }
        // Or the cases are not what they are called.
        for counter in [Counter::HotRedirected, Counter::HotAnswered] {
            if self.count(counter)? < self.blocks as u64 * BLOCK as u64 / 2 {
                return Err(failed("the switch has sent too few gets to holders, or answered too few"));
            }
        }
        Ok(times)
    }

    fn block(&mut self, case: Case, asked: Asked) -> Result<f64> {
        let (first, keys) = case.keys();
        let ring = if case.is_put() { Ring::Multicast } else { Ring::Unicast };
        // Drawn before, or the draws would be what is in the cache.
        let drawn: Vec<KeyDigest> =
            (0..BLOCK).map(|_| digest(first + asked.key(&mut self.random, keys))).collect();
        let mut payload = case.payload(drawn[0]);
        let before = self.bed.switch.runs();
        for digest in drawn {
            set_digest(&mut payload, &digest);
            self.bed.feed(Sender::Client, ring, &digest, &payload)?;
        }
        let after = self.bed.switch.runs();
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
