//! A stalled disk under a node with its own threads and real sockets. The test decides how long a
//! sync stalls.

use super::*;
use crate::node::Node;
use crate::{Stop, UdpEndpoint};
use nicekv_store::Forgetful;
use nicekv_store::files::{FileCall, Moment, Watched};
use std::net::{TcpListener, UdpSocket};
use std::sync::{Condvar, Mutex};

/// Turns a hang into a failure.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(20);
const LOOPBACK: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
const THREAD: &str = "node-1";

/// A disk whose syncs can be stalled; it records the name of the waiting thread.
#[derive(Default)]
struct Disk {
    state: Mutex<DiskState>,
    changed: Condvar,
}

#[derive(Default)]
struct DiskState {
    is_held: bool,
    waiting: Vec<String>,
}

impl Disk {
    fn files(self: &Arc<Self>) -> Arc<dyn Files> {
        let disk = self.clone();
        Arc::new(Watched::new(Arc::new(Forgetful::new(64)), move |moment, call, _| {
            if (moment, call) == (Moment::Begins, FileCall::Sync) {
                disk.wait();
            }
            Ok(())
        }))
    }

    fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiting.push(std::thread::current().name().unwrap_or_default().to_owned());
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |state| state.is_held).unwrap();
        state.waiting.clear();
    }

    fn hold(&self, is_held: bool) {
        self.state.lock().unwrap().is_held = is_held;
        self.changed.notify_all();
    }

    /// Waits for a stalled sync. Returns the name of its thread.
    fn held_thread(&self) -> String {
        let state = self.state.lock().unwrap();
        let (state, timeout) =
            self.changed.wait_timeout_while(state, LIMIT, |state| state.waiting.is_empty()).unwrap();
        assert!(!timeout.timed_out(), "no thread syncs");
        state.waiting[0].clone()
    }
}

/// Releases the disk when dropped, so that a failing test ends.
struct Released<'a>(&'a Disk, &'a Stop);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        self.0.hold(false);
        self.1.stop();
    }
}

struct Peers {
    node: SocketAddrV4,
    metadata: UdpSocket,
    client: UdpSocket,
    sequence: u64,
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(LOOPBACK).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

fn address(socket: &UdpSocket) -> SocketAddrV4 {
    match socket.local_addr().unwrap() {
        std::net::SocketAddr::V4(address) => address,
        other => panic!("{other}"),
    }
}

impl Peers {
    fn lead(&self) {
        let mut bytes = Vec::new();
        lease().encode(&mut bytes);
        self.metadata.send_to(&bytes, self.node).unwrap();
        bytes.clear();
        assign(&[self.node], 1).encode(&mut bytes);
        self.metadata.send_to(&bytes, self.node).unwrap();
    }

    fn send_put(&mut self, key: &str) {
        self.sequence += 1;
        let operation = Operation::Set { value: b"value", expiry: Expiry::Never };
        let bytes = set_datagram(key.as_bytes(), operation, self.sequence, address(&self.client));
        self.client.send_to(&bytes, self.node).unwrap();
    }

    fn send_get(&mut self, key: &str) {
        self.sequence += 1;
        let bytes = get_datagram(key.as_bytes(), self.sequence, address(&self.client));
        self.client.send_to(&bytes, self.node).unwrap();
    }

    /// The next answer: sequence number of the request, and status.
    fn answer(&self) -> (u64, Status) {
        let mut bytes = [0; 2_000];
        let length = self.client.recv(&mut bytes).expect("an answer");
        match Datagram::decode(&bytes[..length]) {
            Ok((_, Datagram::Reply(reply))) => (reply.op.sequence, reply.status),
            other => panic!("{other:?}"),
        }
    }

    /// Waits for `count` heartbeats that the node sends after this call.
    fn heartbeats(&self, count: usize) {
        let mut bytes = [0; 2_000];
        self.metadata.set_nonblocking(true).unwrap();
        while self.metadata.recv(&mut bytes).is_ok() {}
        self.metadata.set_nonblocking(false).unwrap();
        for _ in 0..count {
            self.metadata.recv(&mut bytes).expect("a heartbeat");
        }
    }
}

#[test]
fn row_08_stalled_disk_does_not_stop_heartbeats() {
    stall(LOG_ONLY);
}

/// The log is synced before each sync of the engine, and nothing may be written in between.
#[test]
fn row_08_engine_syncs_do_not_stop_heartbeats() {
    stall(StorageOptions { engine_sync_bytes: 1, ..LOG_ONLY });
}

fn stall(options: StorageOptions) {
    let directory = tempfile::tempdir().unwrap();
    let (disk, stop) = (Arc::new(Disk::default()), Stop::new());
    let endpoint = UdpEndpoint::bind(LOOPBACK).unwrap();
    let mut peers =
        Peers { node: endpoint.local_address(), metadata: socket(), client: socket(), sequence: 0 };
    let mut machine = Machine::new(disk.files(), directory.path(), options, 1);
    (machine.metadata, machine.heartbeat) = (address(&peers.metadata), Duration::from_millis(5));
    let Process { core, storage, waker, .. } = machine.start().unwrap();
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    listener.set_nonblocking(true).unwrap();
    let node = Node::new(core, storage, endpoint, listener, waker, Duration::ZERO);
    let owned = stop.clone();
    let run = move || node.run(&owned).unwrap();
    let thread = std::thread::Builder::new().name(THREAD.into()).spawn(run).unwrap();
    let released = Released(&disk, &stop);
    peers.heartbeats(1);
    peers.lead();
    peers.send_put("first");
    assert_eq!(peers.answer(), (1, Status::Ok));
    let mut stalls_here = 0;
    for round in 0.. {
        assert!(round < 10_000, "{stalls_here} of {round} syncs by the node's own threads");
        disk.hold(true);
        peers.send_put("held");
        let held = peers.sequence;
        let is_here = disk.held_thread() == THREAD;
        if is_here || round == 0 {
            peers.heartbeats(4);
            peers.send_get("first");
            assert_eq!(peers.answer(), (peers.sequence, Status::Ok), "round {round}: gets go on");
            peers.heartbeats(4);
        }
        disk.hold(false);
        assert_eq!(peers.answer(), (held, Status::Ok), "round {round}");
        stalls_here += u32::from(is_here);
        if stalls_here == 3 {
            break;
        }
    }
    drop(released);
    thread.join().unwrap();
}
