//! `nicekv scan`: what a keyspace holds, in pieces, each of one moment (C11).

use crate::commands::{TargetArguments, failed, print, with_client};
use crate::failure::Failure;
use nicekv_client::Scan;
use nicekv_client::facade::Listed;
use nicekv_wire::limits::KEY_BYTES_MAX;
use nicekv_wire::scan::ScanWants;

/// Pieces that are asked for at a time.
const PIECES_MAX: usize = 32;

/// `nicekv scan`
#[derive(clap::Args)]
pub(crate) struct ScanArguments {
    /// Only this key, and what comes after it in the order of bytes
    first: Option<String>,
    /// Only up to this key, itself included
    last: Option<String>,
    /// Stop after so many keys
    #[arg(long, value_name = "KEYS")]
    limit: Option<u64>,
    /// Print values, too, behind a tab
    #[arg(long, conflicts_with = "count")]
    values: bool,
    /// Print only how many keys there are
    #[arg(long, conflicts_with = "limit")]
    count: bool,
    #[command(flatten)]
    target: TargetArguments,
}

pub(crate) fn run(arguments: &ScanArguments) -> Result<(), Failure> {
    let ScanArguments { first, last, limit, values, count, .. } = arguments;
    let (first, last) = (first.as_deref().unwrap_or_default(), last.as_deref());
    if last.is_some_and(|last| last < first) {
        return Err(Failure::Environment(format!("{:?} comes before {first:?}", last.unwrap_or_default())));
    }
    // A count is that of whole pieces, whose keys are not told.
    let wants = match (*values, *count && last.is_none()) {
        (true, _) => ScanWants::Values,
        (false, true) => ScanWants::Count,
        (false, false) => ScanWants::Keys,
    };
    let mut scan = Scan::new(wants, &before(first.as_bytes()));
    if let Some(last) = last {
        scan = scan.up_to(last.as_bytes());
    }
    with_client(&arguments.target, async |client| {
        let (mut seen, mut text) = (0, Vec::new());
        while !scan.is_done() && limit.is_none_or(|limit| seen < limit) {
            let pieces = client.scan(&mut scan, PIECES_MAX).await.map_err(|error| {
                let told = failed(error);
                Failure::Operation(format!("{told}: incomplete after {seen} keys"))
            })?;
            let listed = pieces.listed.iter().filter(|one| is_before_end(one, last));
            if *count {
                seen += if wants == ScanWants::Count { pieces.count } else { listed.count() as u64 };
                continue;
            }
            for one in listed.take(limit.map_or(usize::MAX, |limit| (limit - seen) as usize)) {
                append(one, &mut text);
                seen += 1;
            }
            print(&text)?;
            text.clear();
        }
        if *count { print(format!("{seen}\n").as_bytes()) } else { Ok(()) }
    })
}

fn is_before_end(listed: &Listed, last: Option<&str>) -> bool {
    last.is_none_or(|last| listed.key.as_slice() <= last.as_bytes())
}

/// A line: what is not printable as in Rust's strings.
fn append(Listed { key, value }: &Listed, out: &mut Vec<u8>) {
    out.extend(key.escape_ascii());
    if let Some(value) = value {
        out.push(b'\t');
        out.extend(value.escape_ascii());
    }
    out.push(b'\n');
}

/// The greatest key that comes before this one; nothing comes before the empty one.
fn before(key: &[u8]) -> Vec<u8> {
    let mut before = key.to_vec();
    match before.last_mut() {
        Some(0) => drop(before.pop()),
        Some(last) => {
            *last -= 1;
            before.resize(KEY_BYTES_MAX.max(key.len()), 0xff);
        }
        None => {}
    }
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_begins_with_the_key_that_was_named() {
        assert_eq!(before(b""), b"");
        assert_eq!(before(b"a\0"), b"a");
        let before = before(b"ab");
        assert!(before.as_slice() < &b"ab"[..] && before.as_slice() > &b"aaz"[..]);
        assert_eq!(before.len(), KEY_BYTES_MAX);
    }

    #[test]
    fn keys_are_lines() {
        let mut out = Vec::new();
        append(&Listed { key: b"a\nb".to_vec(), value: Some(b"\xff".to_vec()) }, &mut out);
        append(&Listed { key: b"c".to_vec(), value: None }, &mut out);
        assert_eq!(out, b"a\\nb\t\\xff\nc\n");
    }
}
