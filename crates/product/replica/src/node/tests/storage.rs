//! Tests of requests to the disk and their completions.

use crate::StorageCompletion;
use crate::node::tests::recorder::{METADATA, Node, PARTITION, assign, quiet};
use nicekv_proto::{DecodeError, MatchRange, PartitionId};

fn record(partition: u32, rest: &[u8]) -> Vec<u8> {
    [&partition.to_be_bytes(), rest].concat()
}

#[test]
fn one_sync_ends_a_batch_and_reports_what_it_covered() {
    let mut node = Node::member();
    node.act(|host, _| {
        for record in 1..=3 {
            let number = host.append_awaited(PARTITION, |out| out.push(record));
            assert_eq!((number, host.storage.appended()), (record.into(), record.into()));
            host.storage.want_sync();
        }
        assert_eq!(host.append(PARTITION, |out| out.push(9)), 4);
    });
    let append = |last: u8| format!("Append {{ payload: [0, 0, 0, 4, {last}] }}");
    assert_eq!(node.asked(), [append(1), append(2), append(3), append(9), "Sync".into()]);
    node.core.handle_storage(node.now, StorageCompletion::Synced { through: 0 });
    assert_eq!(node.told(), Vec::<String>::new());
    node.core.handle_storage(node.now, StorageCompletion::Synced { through: 2 });
    assert_eq!(node.told(), ["forced 1", "forced 2"]);
    node.core.handle_storage(node.now, StorageCompletion::Synced { through: 4 });
    assert_eq!((node.told(), node.asked()), (vec!["forced 3".into()], vec![]));
}

#[test]
fn read_completes_with_its_token() {
    let mut node = Node::member();
    node.act(|host, _| {
        assert_eq!(
            (host.read(PARTITION, b"a"), host.read(PARTITION, b"b"), host.scan(PARTITION, Some(b"c"), 99)),
            (1, 2, 3)
        );
    });
    assert_eq!(
        node.asked(),
        [
            "Read { token: 1, partition: PartitionId(4), key: [97] }",
            "Read { token: 2, partition: PartitionId(4), key: [98] }",
            "Scan { token: 3, partition: PartitionId(4), after: Some([99]), bytes_max: 99 }"
        ]
    );
    node.core.handle_storage(node.now, StorageCompletion::Read { token: 1, entry: Some(b"e") });
    // Requests that result from a completion form a batch of their own, so their sync is requested
    // at once.
    assert_eq!(node.asked(), ["Sync"]);
    node.core.handle_storage(node.now, StorageCompletion::ReadCorrupt { token: 2 });
    node.core.handle_storage(
        node.now,
        StorageCompletion::Scan { token: 3, entries: b"", corrupt: &[], more: true },
    );
    assert_eq!(node.told(), ["read 1 Some([101])", "read 2 corrupt", "scanned 3 0 true"]);
}

#[test]
fn void_writes_of_a_partition_are_not_made() {
    let mut node = Node::member();
    node.act(|host, _| {
        let other = PartitionId(7);
        for partition in [PARTITION, other] {
            host.storage.write(partition, b"k", |out| out.push(1));
            host.storage.remove(partition, b"l");
        }
        host.append(PARTITION, |out| out.push(3));
        host.storage.discard_writes(PARTITION);
        host.storage.clear(PARTITION);
    });
    assert_eq!(
        node.asked(),
        [
            "Write { partition: PartitionId(7), key: [107], entry: [1] }",
            "Remove { partition: PartitionId(7), key: [108] }",
            "Append { payload: [0, 0, 0, 4, 3] }",
            "Clear { partition: PartitionId(4) }"
        ]
    );
}

#[test]
fn log_is_trimmed_when_the_checkpoint_is_synced() {
    let mut node = Node::member();
    node.receive(METADATA, |out| assign(PartitionId(6), MatchRange::ALL).encode(out));
    node.act(|host, _| {
        host.append(PARTITION, |out| out.push(1));
    });
    assert_eq!(node.asked().len(), 1);
    node.core.checkpoint();
    let open = |partition: u8| format!("Append {{ payload: [0, 0, 0, {partition}, 111, 112, 101, 110] }}");
    assert_eq!(node.asked(), [open(4), open(6), "Sync".into()]);
    node.core.handle_storage(node.now, StorageCompletion::Synced { through: 2 });
    assert_eq!(node.asked(), Vec::<String>::new());
    node.core.handle_storage(node.now, StorageCompletion::Synced { through: 3 });
    assert_eq!(node.asked(), ["Trim { before: 2 }"]);
    node.core.handle_storage(node.now, StorageCompletion::Synced { through: 4 });
    assert_eq!(node.asked(), Vec::<String>::new());
}

#[test]
fn record_goes_to_its_partition_and_an_unknown_one_is_an_error() {
    let mut node = Node::started(quiet());
    for (payload, told) in
        [(record(4, b"r1"), "replay 1 2"), (record(9, b"r"), "replay 2 1"), (record(4, b"x--"), "replay 3 3")]
    {
        assert_eq!(node.core.replay(node.now, &payload), Ok(()));
        assert_eq!(node.told(), [told]);
    }
    let unknown = Err(DecodeError::UnknownValue { field: "record kind", value: 0 });
    assert_eq!(node.core.replay(node.now, &record(5, b"x")), unknown);
    assert!(node.core.replay(node.now, &[0, 0]).is_err());
    let numbers: Vec<_> = node.core.status().partitions.iter().map(|status| status.partition.0).collect();
    assert_eq!(numbers, [4, 9]);
}
