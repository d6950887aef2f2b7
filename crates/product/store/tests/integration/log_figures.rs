//! Tests of bounds that the log meets to the byte, and of the reported number of dropped bytes.

use crate::common;

use common::{collect, open, open_with, options, segment_paths};
use nicekv_store::log::PAYLOAD_BYTES_MAX;
use nicekv_store::{Forgetful, LogOptions, LogPosition, StoreError};

const RECORD_HEADER_BYTES: usize = 32;

#[test]
fn a_buffer_is_filled_to_the_last_byte() {
    let bytes = 2 * (RECORD_HEADER_BYTES + 100);
    for (buffer_bytes_max, fits) in [(bytes, true), (bytes - 1, false)] {
        let mut log = open_with(&Forgetful::new(64), LogOptions { buffer_bytes_max, ..options() });
        log.append(&[7; 100]).unwrap();
        let second = log.append(&[7; 100]);
        assert_eq!(second.is_ok(), fits, "{second:?}");
        let is_full =
            matches!(second, Err(StoreError::LogBufferFull { bytes_max }) if bytes_max == buffer_bytes_max);
        assert!(fits || is_full);
        log.write().unwrap();
        log.append(&[7; 100]).unwrap();
    }
    let buffer_bytes_max = 2 * PAYLOAD_BYTES_MAX;
    let mut log = open_with(&Forgetful::new(64), LogOptions { buffer_bytes_max, ..options() });
    log.append(&vec![7; PAYLOAD_BYTES_MAX]).unwrap();
    assert!(log.append(&vec![7; PAYLOAD_BYTES_MAX + 1]).is_err());
}

#[test]
fn a_segment_ends_with_the_write_that_fills_it() {
    let header = open(&Forgetful::new(64)).segment_bytes();
    let full = header + 2 * (RECORD_HEADER_BYTES as u64 + 100);
    for (segment_bytes_max, segments) in [(full, 2), (full + 1, 1)] {
        let mut log = open_with(&Forgetful::new(64), LogOptions { segment_bytes_max, ..options() });
        for _ in 0..2 {
            assert_eq!(log.segments(), 1);
            log.append(&[7; 100]).unwrap();
            log.write().unwrap();
        }
        assert_eq!(log.segments(), segments);
        assert_eq!(log.segment_bytes(), if segments == 2 { header } else { full });
    }
}

#[test]
fn torn_tail_size_is_exact() {
    let disk = Forgetful::new(64);
    let mut log = open(&disk);
    for _ in 0..6 {
        log.append(&[7; 200]).unwrap();
        log.write().unwrap();
    }
    drop(log);
    let paths = segment_paths(&disk);
    assert!(paths.len() > 3, "{paths:?}");
    let lengths: Vec<_> = paths.iter().map(|path| disk.content(path).unwrap().len() as u64).collect();
    // Flips a bit of the last record of each segment except the empty last one: that record and all
    // later segments are dropped.
    for broken in 0..paths.len() - 1 {
        let torn = disk.copy();
        let mut bytes = torn.content(&paths[broken]).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        torn.set_content(&paths[broken], bytes);
        let (records, recovered) = collect(&torn).unwrap();
        let kept = lengths[broken] - (RECORD_HEADER_BYTES as u64 + 200);
        let dropped = lengths[broken..].iter().sum::<u64>() - kept;
        assert_eq!(recovered.bytes_dropped, dropped, "segment {broken}");
        assert_eq!(recovered.dropped_from, Some((paths[broken].clone(), kept)));
        assert_eq!((records.len() as u64, recovered.records), (recovered.next.0 - 1, recovered.next.0 - 1));
        assert_eq!(recovered.first, LogPosition(1));
    }
}
