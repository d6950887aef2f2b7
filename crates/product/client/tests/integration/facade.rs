//! The asynchronous handle, with the client's thread played by the test.

use futures_executor::block_on;
use nicekv_client::facade::{Client, ClientError, CommandQueue, channel};
use nicekv_client::{ClientCore, Config, OperationError, SubmitError};
use nicekv_proto::placement::Vrings;
use nicekv_proto::{ClientId, Datagram, Expiry, Now, OpId, Operation, Reply, Status, Update};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// Source address of answers.
const REPLICA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7401);

/// Starts a client thread whose replicas answer with `respond`; it ends when the last handle is
/// dropped.
fn start(respond: fn(Update<'_>) -> Reply<'_>) -> (Client, JoinHandle<u32>) {
    let (wake, woken) = mpsc::channel();
    let (client, mut commands): (Client, CommandQueue) = channel(Arc::new(move || {
        let _ = wake.send(());
    }));
    let thread = std::thread::spawn(move || {
        let config = Config::new(ClientId(1 << 20), Vrings::on_loopback(7400));
        let mut core = ClientCore::new(Config { in_flight_max: 4, ..config });
        let (mut now, mut out, mut reply, mut wakes) = (Now::default(), Vec::new(), Vec::new(), 0);
        while !commands.is_finished(&core) {
            if core.in_flight() == 0 && woken.recv().is_ok() {
                wakes += 1;
            }
            commands.turn(now, &mut core);
            while core.poll_transmit(&mut out).is_some() {
                match Datagram::decode(&out).unwrap().1 {
                    Datagram::Update(update) => respond(update).encode(&mut reply),
                    Datagram::Get(get) => Reply {
                        version: OpId { client: ClientId(3), sequence: 3 },
                        value: Some(get.key),
                        ..Reply::bare(get.op, Status::Ok)
                    }
                    .encode(&mut reply),
                    other => panic!("{other:?}"),
                }
                now.boot_ns += 1000;
                core.handle_datagram(now, REPLICA, &reply);
            }
            commands.turn(now, &mut core);
        }
        wakes
    });
    (client, thread)
}

#[test]
fn calls_become_updates_and_answers_come_back() {
    let (client, thread) = start(|update| {
        let ok = Reply::bare(update.op, Status::Ok);
        match update.operation {
            Operation::Set { value: b"taken", .. } => Reply::bare(update.op, Status::ConditionFailed),
            Operation::Set { .. } if update.return_old => Reply { value: Some(b"old"), ..ok },
            Operation::Set { .. } => Reply { version: update.op, ..ok },
            Operation::Increment(delta) => Reply { integer: delta + 1, ..ok },
            Operation::Append(suffix) => Reply { integer: suffix.len() as i64, ..ok },
            Operation::Delete => Reply::bare(update.op, Status::NotFound),
            _ => Reply::bare(update.op, Status::Overflow),
        }
    });
    block_on(async {
        let read = client.get(b"key").await.unwrap().unwrap();
        assert_eq!((read.bytes.as_slice(), read.expires_at_ms), (b"key".as_slice(), None));
        assert_eq!(client.put(b"k", b"v", Expiry::Never).await.unwrap().sequence, 2);
        assert_eq!(client.put_if_absent(b"k", b"taken", Expiry::Never).await, Ok(None));
        assert!(client.put_if_version(b"k", b"v", Expiry::Keep, read.version).await.unwrap().is_some());
        let old = client.put_and_return_old(b"k", b"v", Expiry::Never).await;
        assert_eq!(old, Ok(Some(b"old".to_vec())));
        assert_eq!(client.increment(b"k", 41).await, Ok(42));
        assert_eq!(client.append(b"k", b"abc").await, Ok(3));
        assert_eq!(client.delete(b"k").await, Ok(false));
        assert_eq!(client.persist(b"k").await, Err(ClientError::Failed(OperationError::Overflow)));
        let infinite = client.increment_float(b"k", f64::INFINITY).await;
        assert_eq!(infinite, Err(ClientError::Refused(SubmitError::NotFinite)));
    });
    drop(client);
    thread.join().unwrap();
}

#[test]
fn more_callers_than_the_window_holds_all_get_answers() {
    let (client, thread) = start(|update| Reply { integer: 1, ..Reply::bare(update.op, Status::Ok) });
    let callers: Vec<_> = (0..32)
        .map(|_| {
            let client = client.clone();
            std::thread::spawn(move || {
                (0..50).map(|_| block_on(client.increment(b"k", 1)).unwrap()).sum::<i64>()
            })
        })
        .collect();
    drop(client);
    let total: i64 = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
    assert_eq!(total, 32 * 50);
    assert!(thread.join().unwrap() <= 32 * 50 + 1, "woken at most once per command");
}

#[test]
fn stopped_client_is_reported() {
    let (client, commands) = channel(Arc::new(|| ()));
    drop(commands);
    assert_eq!(block_on(client.get(b"k")), Err(ClientError::Stopped));
}
