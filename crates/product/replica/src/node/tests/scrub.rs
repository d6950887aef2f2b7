//! Tests of the scrub: when a pass begins, what it reads, and what its partitions receive.

use crate::node::tests::recorder::{METADATA, Node, PARTITION, assign, book, quiet};
use crate::{StorageCompletion, Timing};
use nicekv_proto::control::Assign;
use nicekv_proto::recovery::put_keyed_entry;
use nicekv_proto::{Duration, Epoch, MatchRange, PartitionId};

const INTERVAL: Duration = Duration::from_secs(60);
const HEARTBEAT_NS: u64 = 40_000_000;

/// A node with two partitions, whose scrub reads 25 pages of 8,000 bytes per second.
fn node() -> Node {
    let mut node =
        Node::started(Timing { scrub_interval: INTERVAL, scrub_bytes_per_second: 200_000, ..quiet() });
    for id in [PARTITION, PartitionId(6)] {
        node.receive(METADATA, |out| assign(id, MatchRange::ALL).encode(out));
    }
    node
}

fn heartbeat(node: &mut Node) -> Vec<String> {
    node.now.boot_ns += HEARTBEAT_NS;
    node.core.handle_deadline(node.now);
    node.asked()
}

fn scan(token: u64, partition: u32, after: Option<&str>) -> [String; 1] {
    let after = after.map(str::as_bytes);
    [format!(
        "Scan {{ token: {token}, partition: PartitionId({partition}), after: {after:?}, bytes_max: 8000 }}"
    )]
}

fn page(keys: &[&str]) -> Vec<u8> {
    let mut entries = Vec::new();
    keys.iter().for_each(|key| put_keyed_entry(&mut entries, key.as_bytes(), b"entry"));
    entries
}

fn complete(node: &mut Node, token: u64, entries: &[u8], corrupt: &[Vec<u8>], more: bool) {
    node.core.handle_storage(node.now, StorageCompletion::Scan { token, entries, corrupt, more });
}

#[test]
fn pass_reads_every_partition_page_by_page_and_then_waits() {
    let mut node = node();
    assert_eq!(heartbeat(&mut node), scan(1, 4, None));
    let began = node.now.boot_ns;
    assert_eq!(heartbeat(&mut node), [""; 0], "one page at a time");
    complete(&mut node, 1, &page(&["a", "b"]), &[b"c".to_vec()], true);
    assert_eq!(node.told(), ["scrub begins", "scrubbed after None, 20 bytes, written since []"]);
    assert_eq!(heartbeat(&mut node), scan(2, 4, Some("c")), "a damaged key counts as read");
    complete(&mut node, 2, &page(&["d"]), &[b"c".to_vec()], false);
    assert_eq!(node.told(), ["scrubbed after Some(\"c\"), 10 bytes, written since []"]);
    assert_eq!(heartbeat(&mut node), scan(3, 6, None));
    complete(&mut node, 3, &page(&["d"]), &[], false);
    assert_eq!(node.told(), ["scrub begins", "scrubbed after None, 10 bytes, written since []"]);
    assert_eq!((heartbeat(&mut node), node.core.status().counters.scrubs), (vec![], 1));
    assert_eq!(node.core.status().counters.scrubbed, 4);
    // The next pass begins one interval after the start of this one.
    node.now.boot_ns = began + INTERVAL.as_nanos() as u64 - HEARTBEAT_NS - 1;
    assert_eq!(heartbeat(&mut node), [""; 0]);
    assert_eq!(heartbeat(&mut node), scan(4, 4, None));
    complete(&mut node, 4, b"", &[], false);
    assert_eq!(node.core.status().counters.scrubs, 1);
}

#[test]
fn page_of_an_earlier_epoch_is_dropped() {
    let mut node = node();
    heartbeat(&mut node);
    node.told();
    node.receive(METADATA, |out| {
        Assign { epoch: Epoch(6), ..assign(PARTITION, MatchRange::ALL) }.encode(out);
    });
    complete(&mut node, 1, &page(&["a"]), &[], true);
    assert_eq!(node.told(), ["scrub lost"]);
    assert_eq!(heartbeat(&mut node), scan(2, 4, Some("a")));
}

#[test]
fn scrub_skips_partitions_that_this_node_does_not_serve() {
    let mut node = node();
    let others =
        |id| Assign { members: vec![crate::node::tests::recorder::member(2)], ..assign(id, MatchRange::ALL) };
    heartbeat(&mut node);
    complete(&mut node, 1, &page(&["a"]), &[], true);
    node.receive(METADATA, |out| others(PARTITION).encode(out));
    assert_eq!(heartbeat(&mut node), scan(2, 6, None));
    complete(&mut node, 2, b"", &[], false);
    assert_eq!((heartbeat(&mut node), node.core.status().counters.scrubs), (vec![], 1));
}

#[test]
fn partition_may_delay_the_scrub_or_want_it_early() {
    let mut node = node();
    book(PARTITION, |book| book.puts_off_scrub = true);
    assert_eq!(heartbeat(&mut node), [""; 0]);
    book(PARTITION, |book| book.puts_off_scrub = false);
    assert_eq!(heartbeat(&mut node), scan(1, 4, None));
    complete(&mut node, 1, b"", &[], false);
    heartbeat(&mut node);
    complete(&mut node, 2, b"", &[], false);
    assert_eq!((heartbeat(&mut node), node.core.status().counters.scrubs), (vec![], 1));
    assert_eq!(heartbeat(&mut node), [""; 0]);
    book(PartitionId(6), |book| book.wants_scrub = true);
    assert_eq!(heartbeat(&mut node), scan(3, 4, None));
}

#[test]
fn scrub_knows_keys_written_while_a_page_was_read() {
    let mut node = node();
    let write = |node: &mut Node, key: &'static [u8], partition| {
        node.act(move |host, _| host.storage.write(partition, key, |_| {}));
    };
    write(&mut node, b"a", PARTITION);
    node.asked();
    heartbeat(&mut node);
    write(&mut node, b"b", PARTITION);
    write(&mut node, b"a", PartitionId(6));
    complete(&mut node, 1, &page(&["a", "b"]), &[], true);
    assert_eq!(node.told(), ["scrubbed after None, 20 bytes, written since [\"b\"]"]);
    heartbeat(&mut node);
    complete(&mut node, 2, &page(&["c"]), &[], true);
    assert_eq!(node.told(), ["scrubbed after Some(\"b\"), 10 bytes, written since []"]);
    heartbeat(&mut node);
    node.act(|host, _| host.storage.clear(PartitionId(6)));
    complete(&mut node, 3, &page(&["d"]), &[], true);
    assert_eq!(node.told(), ["scrubbed after Some(\"c\"), 10 bytes, written since []"]);
    heartbeat(&mut node);
    node.act(|host, _| host.storage.clear(PARTITION));
    complete(&mut node, 4, &page(&["e"]), &[], true);
    assert_eq!(
        node.told(),
        ["scrubbed after Some(\"d\"), 10 bytes, written since [\"a\", \"b\"]"],
        "all keys"
    );
}

#[test]
fn zero_interval_disables_the_scrub_and_pages_have_a_least_size() {
    let mut node = Node::member();
    book(PARTITION, |book| book.wants_scrub = true);
    assert_eq!(heartbeat(&mut node), [""; 0]);
    let mut node = Node::started(Timing { scrub_interval: INTERVAL, scrub_bytes_per_second: 1, ..quiet() });
    node.receive(METADATA, |out| assign(PARTITION, MatchRange::ALL).encode(out));
    let asked = heartbeat(&mut node);
    assert!(asked[0].ends_with("bytes_max: 4096 }"), "{asked:?}");
}
