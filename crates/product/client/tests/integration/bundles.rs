//! Tests: which requests share a datagram.

use nicekv_client::{ClientCore, Config, Keyspace, OPERATION_TIMEOUT, Request};
use nicekv_proto::bundle::{Bundle, append_bundled};
use nicekv_proto::placement::{Vrings, key_digest};
use nicekv_proto::{ClientId, Datagram, Expiry, KeyDigest, KeyspaceId, Now, OpId, Operation, Reply, Status};
use std::net::{Ipv4Addr, SocketAddrV4};

const NOW: Now = Now { boot_ns: 17_000_000_000, unix_ms: 1_700_000_000_000 };

const NODE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 2), 7401);
const OTHER_NODE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 3), 7401);
const MS: u64 = 1_000_000;

fn at_ms(ms: u64) -> Now {
    Now { boot_ns: NOW.boot_ns + ms * MS, ..NOW }
}

fn client(partition_bits: Option<u32>) -> ClientCore {
    let keyspace = Keyspace { partition_bits, ..Vrings::on_loopback(7400).into() };
    ClientCore::new(Config::new(ClientId::new(1_700_000_000_000, 5), keyspace))
}

fn submit(client: &mut ClientCore, request: Request<'_>) {
    submit_at(NOW, client, request);
}

fn submit_at(now: Now, client: &mut ClientCore, request: Request<'_>) {
    client.submit(now, KeyspaceId::DEFAULT, request, now.after(OPERATION_TIMEOUT)).unwrap();
}

/// Gets a key in each of four parts of the ring. Returns which of the requests share datagrams.
fn get_one_of_each_part(now: Now, client: &mut ClientCore) -> Vec<Vec<u8>> {
    let part = |key: &str| key_digest(key.as_bytes()).0[0] >> 6;
    for wanted in 0..4 {
        let (key, _) = keys().into_iter().find(|(key, _)| part(key) == wanted).unwrap();
        submit_at(now, client, Request::Get { key: key.as_bytes() });
    }
    let parts = |(_, names): (_, Vec<String>)| names.iter().map(|name| part(name)).collect();
    sent(client).into_iter().map(parts).collect()
}

/// Delivers answers from `from` to the ops with these sequence numbers.
fn answer(now: Now, client: &mut ClientCore, ops: impl IntoIterator<Item = u64>, from: SocketAddrV4) {
    let mut bytes = Vec::new();
    for sequence in ops {
        let op = OpId { client: client.config().client, sequence };
        Reply::bare(op, Status::NotFound).encode(&mut bytes);
        client.handle_datagram(now, from, &bytes);
        client.poll_event().expect("answered");
    }
}

/// Keys, each with the first bit of its digest.
fn keys() -> Vec<(String, bool)> {
    let key = |number| format!("key-{number}");
    (0..40).map(key).map(|key| (key.clone(), key_digest(key.as_bytes()).0[0] & 0x80 != 0)).collect()
}

/// For each datagram sent: the digest by which it is routed, and the keys in it.
fn sent(client: &mut ClientCore) -> Vec<(KeyDigest, Vec<String>)> {
    let (mut all, mut out) = (Vec::new(), Vec::new());
    let name = |datagram: Datagram<'_>| match datagram {
        Datagram::Get(get) => String::from_utf8(get.key.to_vec()).unwrap(),
        Datagram::Update(update) => String::from_utf8(update.key.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    };
    while client.poll_transmit(&mut out).is_some() {
        let (header, datagram) = Datagram::decode(&out).unwrap();
        let names = match datagram {
            Datagram::Bundle(bundle) => {
                let datagrams = bundle.datagrams(&header);
                datagrams.map(|(header, body)| name(Datagram::of(&header, body).unwrap())).collect()
            }
            lone => vec![name(lone)],
        };
        all.push((header.digest, names));
    }
    all
}

#[test]
fn requests_for_one_partition_share_datagrams() {
    let mut client = client(Some(1));
    for (key, _) in &keys() {
        submit(&mut client, Request::Get { key: key.as_bytes() });
    }
    let sent = sent(&mut client);
    assert!((2..=8).contains(&sent.len()), "40 gets in {} datagrams", sent.len());
    for (digest, names) in &sent {
        assert_eq!(*digest, key_digest(names[0].as_bytes()));
        let halves: Vec<bool> =
            names.iter().map(|name| key_digest(name.as_bytes()).0[0] & 0x80 != 0).collect();
        assert!(halves.iter().all(|half| *half == halves[0]));
    }
    let mut found: Vec<String> = sent.into_iter().flat_map(|(_, names)| names).collect();
    let mut expected: Vec<String> = keys().into_iter().map(|(key, _)| key).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn gets_and_updates_do_not_share_and_a_lone_request_is_unchanged() {
    let mut client = client(Some(0));
    submit(&mut client, Request::Get { key: b"a" });
    let operation = Operation::Set { value: &[7; 1024], expiry: Expiry::Never };
    submit(&mut client, Request::update(b"b", operation));
    let mut out = Vec::new();
    assert_eq!(client.poll_transmit(&mut out), Some(Vrings::on_loopback(7400).unicast_ring()));
    assert!(matches!(Datagram::decode(&out).unwrap().1, Datagram::Get(_)));
    assert_eq!(client.poll_transmit(&mut out), Some(Vrings::on_loopback(7400).multicast_ring()));
    assert!(matches!(Datagram::decode(&out).unwrap().1, Datagram::Update(_)));
    assert_eq!(client.poll_transmit(&mut out), None);
}

#[test]
fn without_partition_bits_nothing_is_batched_and_retries_never_are() {
    for (bits, first) in [(None, 40), (Some(0), 2)] {
        let mut client = client(bits);
        for (key, _) in &keys() {
            submit(&mut client, Request::Get { key: key.as_bytes() });
        }
        assert_eq!(sent(&mut client).len(), first);
        let mut retried = Vec::new();
        while retried.len() < 40 {
            let at_ns = client.next_deadline().expect("in flight");
            client.handle_deadline(Now { boot_ns: at_ns, ..NOW });
            retried.extend(sent(&mut client));
        }
        assert!(retried.iter().all(|(_, names)| names.len() == 1));
    }
}

#[test]
fn bundled_replies_are_taken_and_malformed_ones_counted() {
    let mut client = client(Some(0));
    let ops: Vec<OpId> = (0..3)
        .map(|_| {
            let op = client.next_op();
            submit(&mut client, Request::Get { key: b"a" });
            op
        })
        .collect();
    let mut replies = Vec::new();
    for op in &ops {
        replies.push(Vec::new());
        Reply::bare(*op, Status::NotFound).encode(replies.last_mut().unwrap());
    }
    let bundle = |datagrams: &[Vec<u8>]| {
        let mut out = Vec::new();
        Bundle::encode_with(&datagrams[0], &mut out, |out| {
            datagrams.iter().for_each(|datagram| append_bundled(datagram, out));
        });
        out
    };
    // A bundle within a bundle is invalid, and so is a truncated reply.
    replies.push(bundle(&replies));
    let mut bytes = bundle(&replies);
    client.handle_datagram(NOW, NODE, &bytes);
    bytes.pop();
    client.handle_datagram(NOW, NODE, &bytes);
    let mut answered = 0;
    while client.poll_event().is_some() {
        answered += 1;
    }
    assert_eq!((answered, client.counters().malformed), (3, 2));
}

#[test]
fn gets_of_partitions_that_one_node_answers_share_datagrams_for_a_while() {
    let mut client = client(Some(2));
    assert_eq!(get_one_of_each_part(NOW, &mut client), [[0], [1], [2], [3]], "nothing is known yet");
    answer(NOW, &mut client, [1, 2, 3], NODE);
    answer(NOW, &mut client, [4], OTHER_NODE);
    assert_eq!(get_one_of_each_part(at_ms(1), &mut client), [vec![0, 1, 2], vec![3]]);
    // Only the answer to the leader of a datagram shows which node answers its partition.
    answer(at_ms(1), &mut client, [5], OTHER_NODE);
    answer(at_ms(1), &mut client, [6, 7, 8], NODE);
    assert_eq!(get_one_of_each_part(at_ms(2), &mut client), [vec![0], vec![1, 2, 3]]);
    answer(at_ms(2), &mut client, [9, 10, 11, 12], NODE);
    let updates = |client: &mut ClientCore| {
        for (key, _) in &keys() {
            submit_at(at_ms(3), client, Request::update(key.as_bytes(), Operation::Delete));
        }
        sent(client).len()
    };
    assert!(updates(&mut client) >= 4, "updates go to all members");
    assert_eq!(get_one_of_each_part(at_ms(200), &mut client), [[0], [1], [2], [3]], "that was long ago");
}

#[test]
fn partitions_of_an_unanswered_batch_stay_apart() {
    let mut client = client(Some(2));
    get_one_of_each_part(NOW, &mut client);
    answer(NOW, &mut client, [1, 2, 3, 4], NODE);
    assert_eq!(get_one_of_each_part(at_ms(1), &mut client), [[0, 1, 2, 3]]);
    // One of the partitions is no longer answered by that node.
    answer(at_ms(1), &mut client, [5, 6, 8], NODE);
    let at_ns = client.next_deadline().expect("in flight");
    client.handle_deadline(Now { boot_ns: at_ns + 10 * MS, ..NOW });
    assert_eq!(sent(&mut client).len(), 1, "it is sent again, alone");
    answer(at_ms(20), &mut client, [7], OTHER_NODE);
    let shared = get_one_of_each_part(at_ms(21), &mut client);
    assert_eq!(shared, [vec![0], vec![1, 3], vec![2]], "the leader's partition stays apart, too");
}
