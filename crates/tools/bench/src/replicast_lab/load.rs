//! Callers that put one chunk after the other, and the figures of a measurement.

use super::hashed::HashedClient;
use super::traffic::Passed;
use super::{CHUNK_BYTES, COPIES};
use crate::cost::MachineTime;
use crate::error::{BenchError, Result};
use crate::latencies::Latencies;
use nicekv_objects::chunk_id;
use nicekv_proto::chunk::ChunkId;
use nicekv_runtime::chunks::ChunkClient;
use nicekv_runtime::{Stop, now, random};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of 1 MB.
const MEGA: f64 = 1e6;

/// A client of one of the systems.
#[derive(Clone)]
pub(super) enum Store {
    Negotiated(ChunkClient),
    Hashed(HashedClient),
}

impl Store {
    /// Returns when three targets hold the chunk durably.
    fn put(&self, id: ChunkId, bytes: Arc<[u8]>) -> Result<()> {
        let failed = |why: String| BenchError::Failed(format!("a put of chunk {id}: {why}"));
        match self {
            Self::Negotiated(client) => {
                let placed = client.put(id, bytes).wait().map_err(|error| failed(error.to_string()))?;
                match placed.holders.len() {
                    0..COPIES => Err(failed(format!("{placed:?}"))),
                    _ => Ok(()),
                }
            }
            Self::Hashed(client) => client.put(id, bytes).wait().map_err(failed),
        }
    }
}

/// Length of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    pub(super) warm_up: Duration,
    pub(super) length: Duration,
}

/// When a chunk was put.
#[derive(Clone, Copy, Debug)]
struct Taken {
    begun_ns: u64,
    ended_ns: u64,
}

/// Counters before and after a measurement.
pub(super) struct Snapshot {
    pub(super) at: Instant,
    pub(super) machine: MachineTime,
    /// Sent by all clients.
    pub(super) sent_bytes: u64,
    pub(super) negotiations: u64,
    pub(super) background: Option<Passed>,
}

/// The figures of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    /// Rate of chunks completed within the period.
    pub(super) megabytes_per_second: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// Bytes that clients sent, with all headers, per byte that was put.
    pub(super) sent: f64,
    /// Busy share of the machine's processors.
    pub(super) busy: f64,
    /// Requests per chunk; 0 with targets by hash.
    pub(super) negotiations: f64,
    /// Share of background traffic that arrived, if there was any.
    pub(super) background: Option<f64>,
    /// Chunks put, including those before and after the period.
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
        self.background
            .map_or(Ok(()), |part| write!(formatter, ", {:.0} % of the background traffic", part * 100.0))
    }
}

/// The chunks that all callers have put.
pub(super) struct Puts {
    taken: Vec<Taken>,
    begin_ns: u64,
    end_ns: u64,
}

impl Puts {
    /// Runs `callers` callers at each store until the warm-up and the period are over, and waits
    /// for chunks in flight.
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

    pub(super) fn bytes(&self) -> u64 {
        (self.taken.len() * CHUNK_BYTES) as u64
    }

    /// Throughput counts chunks completed within the period; latencies are of chunks begun in it,
    /// as the slowest complete later.
    pub(super) fn measured(&self, before: &Snapshot, after: &Snapshot) -> Result<Measured> {
        let within = |time_ns: u64| (self.begin_ns..self.end_ns).contains(&time_ns);
        let done = self.taken.iter().filter(|taken| within(taken.ended_ns)).count();
        let begun = self.taken.iter().filter(|taken| within(taken.begun_ns));
        let mut latencies = Latencies::default();
        begun.for_each(|taken| latencies.record(taken.ended_ns - taken.begun_ns));
        if latencies.is_empty() || done == 0 {
            return Err(BenchError::Failed("no chunk was put within the period".into()));
        }
        let seconds = (self.end_ns - self.begin_ns) as f64 / 1e9;
        Ok(Measured {
            megabytes_per_second: (done * CHUNK_BYTES) as f64 / MEGA / seconds,
            p50_ms: latencies.quantile_us(0.5) / 1e3,
            p99_ms: latencies.quantile_us(0.99) / 1e3,
            sent: (after.sent_bytes - before.sent_bytes) as f64 / self.bytes() as f64,
            busy: after.machine.since(before.machine).busy.as_secs_f64()
                / (after.at - before.at).as_secs_f64()
                / std::thread::available_parallelism().map_or(1, usize::from) as f64,
            negotiations: (after.negotiations - before.negotiations) as f64 / self.taken.len() as f64,
            background: after
                .background
                .zip(before.background)
                .map(|(after, before)| after.part_since(before)),
            chunks: self.taken.len(),
        })
    }
}

/// Puts one chunk after the other. The time to generate a chunk is not counted.
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

/// Generates chunks that differ from all others.
struct Content {
    bytes: Vec<u8>,
    count: u64,
}

impl Content {
    fn new() -> Result<Self> {
        let seed = random().map_err(BenchError::system("draw random numbers"))?;
        let mut bytes = vec![0; CHUNK_BYTES];
        fastrand::Rng::with_seed(seed).fill(&mut bytes);
        Ok(Self { bytes, count: 0 })
    }

    fn next(&mut self) -> (ChunkId, Arc<[u8]>) {
        self.count += 1;
        // Enough for another id, with little work beside the measurement.
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
    fn throughput_is_of_chunks_completed_in_the_period_and_latency_of_those_begun() {
        let taken = |begun_ms: u64, ended_ms: u64| Taken { begun_ns: begun_ms * MS, ended_ns: ended_ms * MS };
        let taken = vec![taken(0, 900), taken(900, 1_100), taken(1_100, 1_200), taken(1_500, 9_000)];
        let at = Instant::now();
        let puts = Puts { taken, begin_ns: 1_000 * MS, end_ns: 2_000 * MS };
        let snapshot = |count: u64| Snapshot {
            at: at + Duration::from_secs(count),
            machine: MachineTime::default(),
            sent_bytes: count * CHUNK_BYTES as u64,
            negotiations: count,
            background: Some(Passed { sent: count, arrived: count / 2 }),
        };
        let measured = puts.measured(&snapshot(2), &snapshot(10)).unwrap();
        assert_eq!(measured.megabytes_per_second, 2.0 * CHUNK_BYTES as f64 / MEGA);
        for (ms, expected) in [(measured.p50_ms, 100.0), (measured.p99_ms, 7_500.0)] {
            assert!((ms / expected - 1.0_f64).abs() < 0.001, "{ms} ms");
        }
        assert_eq!((measured.sent, measured.chunks, measured.negotiations), (2.0, 4, 2.0));
        assert_eq!((measured.background, measured.busy), (Some(0.5), 0.0));
        let none = Puts { begin_ns: 0, end_ns: 1, ..puts };
        assert!(none.measured(&snapshot(2), &snapshot(10)).is_err());
    }

    #[test]
    fn chunks_differ_and_match_their_ids() {
        let mut content = Content::new().unwrap();
        let chunks: Vec<_> = (0..3).map(|_| content.next()).collect();
        assert!(chunks[0].0 != chunks[1].0 && chunks[1].0 != chunks[2].0);
        assert!(chunks.iter().all(|(id, bytes)| bytes.len() == CHUNK_BYTES && chunk_id(bytes) == *id));
        assert_ne!(Content::new().unwrap().next().0, chunks[0].0, "two callers put different chunks");
    }
}
