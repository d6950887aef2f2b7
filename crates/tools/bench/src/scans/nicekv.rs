//! Scans by the NICEKV client: it requests parts of a scan side by side, and what an answer leaves
//! out at once.

use super::data::{Seen, key, value};
use crate::error::{BenchError, Result};
use crate::load::driver::Driver;
use crate::load::{ANSWER_TIMEOUT, Limits, check_done, submit_request};
use nicekv_client::{Config, Keyspace, Request, Scan};
use nicekv_proto::scan::ScanWants;
use nicekv_proto::{Expiry, KeyspaceId, Now, Operation};
use nicekv_runtime::{new_client_id, now};
use std::net::SocketAddrV4;

/// Maximum parts requested at once.
const PARTS_MAX: usize = 64;
const PRELOADERS: usize = 256;

pub(super) struct ScanLoad {
    driver: Driver,
    /// The part of each request in flight, by the index of its ticket.
    parts: Vec<u32>,
}

impl ScanLoad {
    /// A client whose socket belongs to the calling thread's network namespace.
    pub(super) fn bind(address: SocketAddrV4, keyspaces: Vec<Keyspace>) -> std::io::Result<Self> {
        let config = Config::new(new_client_id()?, keyspaces[0]);
        let config = Config { keyspaces, ..config };
        Ok(Self { driver: Driver::bind(address, config)?, parts: Vec::new() })
    }

    /// Stores `keys` keys.
    pub(super) fn preload(&mut self, keyspace: KeyspaceId, keys: u32, limits: Limits<'_>) -> Result<()> {
        let begun = now();
        let mut numbers = 0..keys;
        let mut free = PRELOADERS;
        let mut at = begun;
        while free < PRELOADERS || !numbers.is_empty() {
            for number in numbers.by_ref().take(free) {
                let (key, value) = (key(number, keys), value(number, keys));
                let put = Request::update(&key, Operation::Set { value: &value, expiry: Expiry::Never });
                submit_request(&mut self.driver.core, at, keyspace, put, ANSWER_TIMEOUT)?;
                free -= 1;
            }
            at = self.driver.turn()?;
            while let Some(completion) = self.driver.core.poll_event() {
                check_done("a put", completion.result)?;
                free += 1;
            }
            check(limits, begun, at)?;
        }
        Ok(())
    }

    /// Runs a scan and records its keys in `seen`. Returns how many datagrams were sent again.
    pub(super) fn run(
        &mut self,
        keyspace: KeyspaceId,
        mut scan: Scan,
        seen: &mut Seen,
        limits: Limits<'_>,
    ) -> Result<u64> {
        let retries = self.driver.core.counters().retries;
        let begun = now();
        let mut at = begun;
        while !scan.is_done() {
            self.ask(at, keyspace, &mut scan)?;
            at = self.driver.turn()?;
            self.take_answers(&mut scan, seen)?;
            check(limits, begun, at)?;
        }
        match seen.is_all() && !seen.is_repeated() {
            true => Ok(self.driver.core.counters().retries - retries),
            false => Err(BenchError::Failed(format!("a scan returned {} keys, or some twice", seen.count()))),
        }
    }

    fn ask(&mut self, now: Now, keyspace: KeyspaceId, scan: &mut Scan) -> Result<()> {
        while self.driver.core.in_flight() < PARTS_MAX
            && let Some(part) = scan.unasked()
        {
            let ticket =
                submit_request(&mut self.driver.core, now, keyspace, scan.ask(part), ANSWER_TIMEOUT)?;
            if self.parts.len() <= ticket.index() {
                self.parts.resize(ticket.index() + 1, 0);
            }
            self.parts[ticket.index()] = part;
        }
        Ok(())
    }

    fn take_answers(&mut self, scan: &mut Scan, seen: &mut Seen) -> Result<()> {
        while let Some(completion) = self.driver.core.poll_event() {
            let part = self.parts[completion.ticket.index()];
            let failed = |error| BenchError::Failed(format!("a piece of a scan: {error}"));
            let answer = completion.result.map_err(failed)?;
            let mut is_right = true;
            let is_taken = scan.take(part, answer.pieces(), |piece| {
                for entry in piece.entries() {
                    is_right &= seen.record(entry.key, entry.value.unwrap_or_default());
                }
            });
            if !is_taken || !is_right {
                return Err(BenchError::Failed(
                    "a piece of a scan has keys or values that it should not have".into(),
                ));
            }
        }
        Ok(())
    }
}

/// An error after the time limit.
fn check(limits: Limits<'_>, begun: Now, now: Now) -> Result<()> {
    if limits.stop.is_stopped() {
        return Err(BenchError::Interrupted);
    }
    match u128::from(now.boot_ns.saturating_sub(begun.boot_ns)) > limits.duration.as_nanos() {
        true => Err(BenchError::Failed(format!("not finished in {:?}", limits.duration))),
        false => Ok(()),
    }
}

/// A scan of a whole keyspace, with values, `pieces` pieces at once.
pub(super) fn whole(pieces: u8) -> Scan {
    Scan::new(ScanWants::Values, None).split_into(pieces)
}
