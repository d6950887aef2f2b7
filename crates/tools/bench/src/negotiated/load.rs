//! Callers who put one chunk after the other, and what that took.

use super::hashed::HashedClient;
use super::traffic::Passed;
use crate::cost::MachineTime;
use crate::error::{BenchError, Result};
use nicekv_objects::chunk_id;
use nicekv_proto::chunk::ChunkId;
use nicekv_runtime::chunks::ChunkClient;
use nicekv_runtime::{Stop, now, random};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a chunk.
pub(super) const CHUNK_BYTES: usize = 1 << 20;
/// Bytes of 1 MB.
const MEGA: f64 = 1e6;

/// Where chunks are put.
#[derive(Clone)]
pub(super) enum Store {
    Negotiated(ChunkClient),
    Hashed(HashedClient),
}

impl Store {
    /// Returns when three targets hold it durably.
    fn put(&self, id: ChunkId, bytes: Arc<[u8]>) -> Result<()> {
        let failed = |why: String| BenchError::Failed(format!("a put of chunk {id}: {why}"));
        match self {
            Self::Negotiated(client) => {
                let placed = client.put(id, bytes).wait().map_err(|error| failed(error.to_string()))?;
                match placed.holders.len() {
                    0..super::bed::COPIES => Err(failed(format!("{placed:?}"))),
                    _ => Ok(()),
                }
            }
            Self::Hashed(client) => client.put(id, bytes).wait().map_err(failed),
        }
    }
}

/// How long a measurement is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    pub(super) warm_up: Duration,
    pub(super) length: Duration,
}

/// A chunk that was put.
#[derive(Clone, Copy, Debug)]
struct Taken {
    begun_ns: u64,
    ended_ns: u64,
}

/// What can be seen from outside, before and after.
pub(super) struct Seen {
    pub(super) at: Instant,
    pub(super) machine: MachineTime,
    /// By all clients.
    pub(super) sent_bytes: u64,
    pub(super) negotiations: u64,
    pub(super) others: Option<Passed>,
}

/// What a measurement has shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    /// Of chunks that were done within the period.
    pub(super) megabytes_per_second: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// What left the clients for a byte that was put, with all headers.
    pub(super) sent: f64,
    /// Of the machine's processors, whoever was busy there.
    pub(super) busy: f64,
    /// For a chunk; 0 where nobody negotiates.
    pub(super) negotiations: f64,
    /// What got through of others' traffic, if there was some.
    pub(super) others: Option<f64>,
    /// All of them, before and after the period, too.
    pub(super) chunks: usize,
}

impl fmt::Display for Measured {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { megabytes_per_second, p50_ms, p99_ms, sent, negotiations, chunks, .. } = self;
        write!(
            formatter,
            "{megabytes_per_second:.1} MB/s, p50 {p50_ms:.0} ms, p99 {p99_ms:.0} ms, sent {sent:.2} times, {chunks} chunks, {negotiations:.2} negotiations of each, processors busy {:.0} %",
            self.busy * 100.0
        )?;
        self.others.map_or(Ok(()), |part| write!(formatter, ", {:.0} % of others' traffic", part * 100.0))
    }
}

/// What all callers have put.
pub(super) struct Puts {
    taken: Vec<Taken>,
    begin_ns: u64,
    end_ns: u64,
}

impl Puts {
    /// So many callers at each store, from now on until warm-up and period are over; then what is under way is waited for.
    pub(super) fn run(stores: &[Store], callers: u8, period: Period, stop: &Stop) -> Result<Self> {
        let begin_ns = now().after(period.warm_up);
        let end_ns = begin_ns + period.length.as_nanos() as u64;
        let taken = std::thread::scope(|scope| {
            let all = stores.iter().flat_map(|store| (0..callers).map(move |_| store));
            let threads: Vec<_> = all.map(|store| scope.spawn(move || call(store, end_ns, stop))).collect();
            let results = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            results.collect::<Result<Vec<_>>>()
        })?;
        if stop.is_stopped() {
            return Err(BenchError::Interrupted);
        }
        Ok(Self { taken: taken.concat(), begin_ns, end_ns })
    }

    /// All bytes.
    pub(super) fn bytes(&self) -> u64 {
        (self.taken.len() * CHUNK_BYTES) as u64
    }

    /// Throughput is of what was done within the period, times are of all that had begun in it: who waits longest is done after it.
    pub(super) fn measured(&self, before: &Seen, after: &Seen) -> Result<Measured> {
        let within = |time_ns: u64| (self.begin_ns..self.end_ns).contains(&time_ns);
        let done = self.taken.iter().filter(|taken| within(taken.ended_ns)).count();
        let begun = self.taken.iter().filter(|taken| within(taken.begun_ns));
        let mut times_ns: Vec<u64> = begun.map(|taken| taken.ended_ns - taken.begun_ns).collect();
        times_ns.sort_unstable();
        if times_ns.is_empty() || done == 0 {
            return Err(BenchError::Failed("no chunk was put within the period".into()));
        }
        let seconds = (self.end_ns - self.begin_ns) as f64 / 1e9;
        Ok(Measured {
            megabytes_per_second: (done * CHUNK_BYTES) as f64 / MEGA / seconds,
            p50_ms: quantile_ms(&times_ns, 0.5),
            p99_ms: quantile_ms(&times_ns, 0.99),
            sent: (after.sent_bytes - before.sent_bytes) as f64 / self.bytes() as f64,
            busy: after.machine.since(before.machine).busy.as_secs_f64()
                / (after.at - before.at).as_secs_f64()
                / std::thread::available_parallelism().map_or(1, usize::from) as f64,
            negotiations: (after.negotiations - before.negotiations) as f64 / self.taken.len() as f64,
            others: after.others.zip(before.others).map(|(after, before)| after.part_since(before)),
            chunks: self.taken.len(),
        })
    }
}

/// What this part of all took at most; of at least one, in order.
fn quantile_ms(times_ns: &[u64], part: f64) -> f64 {
    let place = (times_ns.len() as f64 * part).ceil() as usize;
    times_ns[place.clamp(1, times_ns.len()) - 1] as f64 / 1e6
}

/// Puts one chunk after the other. To make one is not counted.
fn call(store: &Store, end_ns: u64, stop: &Stop) -> Result<Vec<Taken>> {
    let mut content = Content::new()?;
    let mut taken = Vec::new();
    while now().boot_ns < end_ns && !stop.is_stopped() {
        let (id, bytes) = content.next();
        let begun_ns = now().boot_ns;
        store.put(id, bytes)?;
        taken.push(Taken { begun_ns, ended_ns: now().boot_ns });
    }
    Ok(taken)
}

/// Chunks, none of which was there before.
struct Content {
    bytes: Vec<u8>,
    count: u64,
}

impl Content {
    fn new() -> Result<Self> {
        let mut state = random().map_err(BenchError::system("draw random numbers"))? | 1;
        let mut word = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        Ok(Self { bytes: (0..CHUNK_BYTES / 8).flat_map(|_| word().to_ne_bytes()).collect(), count: 0 })
    }

    fn next(&mut self) -> (ChunkId, Arc<[u8]>) {
        self.count += 1;
        // Enough for another id, and as little work as can be beside what is measured.
        self.bytes[..size_of::<u64>()].copy_from_slice(&self.count.to_ne_bytes());
        let bytes: Arc<[u8]> = self.bytes.as_slice().into();
        (chunk_id(&bytes), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_is_done_in_the_period_is_its_throughput_and_what_begins_in_it_its_times() {
        let taken = |begun_ms: u64, ended_ms: u64| Taken { begun_ns: begun_ms * MS, ended_ns: ended_ms * MS };
        let taken = vec![taken(0, 900), taken(900, 1_100), taken(1_100, 1_200), taken(1_500, 9_000)];
        let at = Instant::now();
        let puts = Puts { taken, begin_ns: 1_000 * MS, end_ns: 2_000 * MS };
        let seen = |count: u64| Seen {
            at: at + Duration::from_secs(count),
            machine: MachineTime::default(),
            sent_bytes: count * CHUNK_BYTES as u64,
            negotiations: count,
            others: Some(Passed { sent: count, arrived: count / 2 }),
        };
        let measured = puts.measured(&seen(2), &seen(10)).unwrap();
        assert_eq!(measured.megabytes_per_second, 2.0 * CHUNK_BYTES as f64 / MEGA);
        assert_eq!((measured.p50_ms, measured.p99_ms), (100.0, 7_500.0));
        assert_eq!((measured.sent, measured.chunks, measured.negotiations), (2.0, 4, 2.0));
        assert_eq!((measured.others, measured.busy), (Some(0.5), 0.0));
        let none = Puts { begin_ns: 0, end_ns: 1, ..puts };
        assert!(none.measured(&seen(2), &seen(10)).is_err());
    }

    #[test]
    fn chunks_differ_and_are_what_their_ids_say() {
        let mut content = Content::new().unwrap();
        let chunks: Vec<_> = (0..3).map(|_| content.next()).collect();
        assert!(chunks[0].0 != chunks[1].0 && chunks[1].0 != chunks[2].0);
        assert!(chunks.iter().all(|(id, bytes)| bytes.len() == CHUNK_BYTES && chunk_id(bytes) == *id));
        assert_ne!(Content::new().unwrap().next().0, chunks[0].0, "nor are they another caller's");
    }
}
