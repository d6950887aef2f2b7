//! `nicekv scan`: lists the keys of a keyspace, in pieces that are each a consistent snapshot
//! (C11).
//!
//! In a range-partitioned keyspace, only the requested interval is scanned, and keys are printed in
//! order: a key is held back until no smaller key can follow.

use crate::client::{TargetArguments, client_with_order, failed};
use crate::discovery::Purpose;
use crate::failure::Failure;
use crate::output::{print, printable};
use futures_executor::block_on;
use nicekv_client::Scan;
use nicekv_client::facade::{Client, Listed};
use nicekv_proto::placement::match_digest;
use nicekv_proto::scan::{ScanWants, key_before};
use nicekv_proto::{KeyOrder, MatchRange};
use nicekv_runtime::new_client_id;
use std::collections::BTreeMap;

/// Pieces that are requested at a time.
const PIECES_MAX: usize = 32;
/// Maximum bytes of keys and values held back; above this, pieces are requested one at a time.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Typical number of keys in a piece, to decide how many pieces a `--limit` needs.
const KEYS_OF_A_PIECE: u64 = 32;

/// `nicekv scan`
#[derive(clap::Args)]
pub struct ScanArguments {
    /// First key, in byte order
    first: Option<String>,
    /// Last key, inclusive
    last: Option<String>,
    /// Stop after this many keys
    #[arg(long, value_name = "KEYS")]
    limit: Option<u64>,
    /// Also print values, after a tab; values that do not fit into a datagram with their key (above 1,024 bytes) are left out
    #[arg(long, conflicts_with = "count")]
    values: bool,
    /// Print only the number of keys
    #[arg(long, conflicts_with = "limit")]
    count: bool,
    #[command(flatten)]
    target: TargetArguments,
}

pub fn run(arguments: &ScanArguments) -> Result<(), Failure> {
    let (first, last) = (arguments.first.as_deref().unwrap_or_default(), arguments.last.as_deref());
    if last.is_some_and(|last| last < first) {
        return Err(Failure::Environment(format!("{:?} comes before {first:?}", last.unwrap_or_default())));
    }
    let id = new_client_id().map_err(Failure::environment)?;
    let (client, order) = client_with_order(&arguments.target, id, Purpose::Read)?;
    let scan = arguments.scan(order);
    block_on(Listing { arguments, order, scan, seen: 0, held: BTreeMap::new(), held_bytes: 0 }.run(&client))
}

impl ScanArguments {
    fn wants(&self) -> ScanWants {
        // Nodes can count whole pieces without sending the keys.
        match (self.values, self.count && self.last.is_none()) {
            (true, _) => ScanWants::Values,
            (false, true) => ScanWants::Count,
            (false, false) => ScanWants::Keys,
        }
    }

    /// The scan at its beginning.
    fn scan(&self, order: KeyOrder) -> Scan {
        let first = self.first.as_deref().unwrap_or_default().as_bytes();
        let last = self.last.as_deref().map(str::as_bytes);
        let mut scan = Scan::new(self.wants(), key_before(first).as_deref());
        if let Some(last) = last {
            scan = scan.up_to(last);
        }
        if order == KeyOrder::Range {
            let value = |key| match_digest(order, key).match_value();
            let range = MatchRange::new(value(first), last.map_or(u128::MAX, value));
            scan = scan.within(range.expect("the first is not behind the last"));
            if self.limit.is_some_and(|limit| limit <= KEYS_OF_A_PIECE) {
                scan = scan.split_into(1);
            }
        }
        scan
    }
}

/// A scan in progress.
struct Listing<'a> {
    arguments: &'a ScanArguments,
    order: KeyOrder,
    scan: Scan,
    /// Keys printed or counted so far.
    seen: u64,
    /// Keys that are held back, because smaller keys may still arrive.
    held: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    held_bytes: usize,
}

impl Listing<'_> {
    async fn run(mut self, client: &Client) -> Result<(), Failure> {
        while !self.scan.is_done() && self.is_wanted() {
            let parts_max = self.parts_max();
            let pieces = client.scan(&mut self.scan, parts_max).await.map_err(|error| {
                let failure = failed(error);
                Failure::Operation(format!("{failure}: incomplete after {} keys", self.seen))
            })?;
            let last = self.arguments.last.as_deref();
            let listed = pieces.listed.into_iter().filter(|one| is_before_end(one, last));
            if self.arguments.count {
                let is_told = self.arguments.wants() == ScanWants::Count;
                self.seen += if is_told { pieces.count } else { listed.count() as u64 };
            } else if self.order == KeyOrder::Range {
                listed.for_each(|one| self.hold(one));
                self.print_held()?;
            } else {
                self.print(listed.collect())?;
            }
        }
        if self.arguments.count { print(format!("{}\n", self.seen).as_bytes()) } else { Ok(()) }
    }

    fn is_wanted(&self) -> bool {
        self.arguments.limit.is_none_or(|limit| self.seen < limit)
    }

    /// How many pieces to request next. In key order, not more than `--limit` can use.
    fn parts_max(&self) -> usize {
        if self.order == KeyOrder::Hash {
            return PIECES_MAX;
        }
        let left = self.arguments.limit.map_or(u64::MAX, |limit| limit - self.seen);
        let of_use = usize::try_from(left.div_ceil(KEYS_OF_A_PIECE)).unwrap_or(PIECES_MAX);
        if self.held_bytes < HELD_BYTES_MAX { of_use.min(PIECES_MAX) } else { 1 }
    }

    fn hold(&mut self, Listed { key, value }: Listed) {
        let (key_bytes, value_bytes) = (key.len(), value.as_ref().map_or(0, Vec::len));
        // During a split, a key may be listed by two pieces, from before and after it.
        match self.held.insert(key, value) {
            Some(old) => self.held_bytes = self.held_bytes + value_bytes - old.map_or(0, |old| old.len()),
            None => self.held_bytes += key_bytes + value_bytes,
        }
    }

    /// Prints the held keys that no smaller key can precede any more.
    fn print_held(&mut self) -> Result<(), Failure> {
        let mut next = Vec::new();
        while let Some(entry) = self.held.first_entry() {
            let value = match_digest(self.order, entry.key()).match_value();
            if !self.scan.has_passed(value, entry.key()) {
                break;
            }
            let (key, value) = entry.remove_entry();
            self.held_bytes -= key.len() + value.as_ref().map_or(0, Vec::len);
            next.push(Listed { key, value });
        }
        self.print(next)
    }

    fn print(&mut self, mut listed: Vec<Listed>) -> Result<(), Failure> {
        let room = self.arguments.limit.map_or(u64::MAX, |limit| limit - self.seen);
        listed.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        self.seen += listed.len() as u64;
        let mut text = String::new();
        listed.iter().for_each(|one| append(one, &mut text));
        print(text.as_bytes())
    }
}

fn is_before_end(listed: &Listed, last: Option<&str>) -> bool {
    last.is_none_or(|last| listed.key.as_slice() <= last.as_bytes())
}

/// Appends a line with the printable form of the key, and of the value if there is one.
fn append(Listed { key, value }: &Listed, out: &mut String) {
    out.push_str(&printable(key));
    if let Some(value) = value {
        out.push('\t');
        out.push_str(&printable(value));
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, FromArgMatches as _};
    use nicekv_client::Request;

    /// First and last match value that a scan with these arguments requests, and how many pieces.
    fn asked(words: &[&str], order: KeyOrder) -> (u128, u128, u8) {
        let command = ScanArguments::augment_args(clap::Command::new("scan").no_binary_name(true));
        let matches = command.try_get_matches_from(words).unwrap();
        let mut scan = ScanArguments::from_arg_matches(&matches).unwrap().scan(order);
        let Request::Scan { range, pieces, .. } = scan.ask(0) else { panic!("a scan") };
        (range.first(), range.last(), pieces)
    }

    #[test]
    fn only_the_interval_is_scanned_in_key_order() {
        let [b, d] = [b'b', b'd'].map(|letter| u128::from(letter) << 120);
        assert_eq!(asked(&["b", "d"], KeyOrder::Range), (b, d, 8));
        assert_eq!(asked(&["b"], KeyOrder::Range), (b, u128::MAX, 8));
        assert_eq!(asked(&["b", "--limit", "3"], KeyOrder::Range), (b, u128::MAX, 1));
        assert_eq!(asked(&[], KeyOrder::Range), (0, u128::MAX, 8));
        // With hashed keys, a key of the interval may be in any partition.
        assert_eq!(asked(&["b", "d", "--limit", "3"], KeyOrder::Hash), (0, u128::MAX, 8));
    }

    #[test]
    fn each_key_is_one_line() {
        let mut out = String::new();
        append(&Listed { key: b"a\nb".to_vec(), value: Some(b"\xff".to_vec()) }, &mut out);
        append(&Listed { key: b"c".to_vec(), value: None }, &mut out);
        assert_eq!(out, "a\\nb\t\\xff\nc\n");
    }
}
