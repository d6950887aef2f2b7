//! Thread of a native client: runs its core, its socket, and the command queue of its async
//! handles.

use crate::{BusyPoll, Left, Stop, UdpEndpoint, Waker, now, readable, wait};
use nicekv_client::facade::{Client, CommandQueue, channel};
use nicekv_client::{ClientCore, Config, Keyspace};
use nicekv_proto::ClientId;
use nicekv_proto::limits::LARGE_BYTES_MAX;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Most batches that are received before commands of callers are processed.
const RECEIVE_ROUNDS_MAX: usize = 8;

/// Starts a client of `keyspace`, bound to `address` (unspecified: the kernel chooses). Its thread
/// ends at the `stop`, or when the last clone of the returned handle is dropped. It supports values
/// of any length.
pub fn start_client(
    stop: &Stop,
    address: Ipv4Addr,
    keyspace: impl Into<Keyspace>,
) -> io::Result<(Client, JoinHandle<io::Result<()>>)> {
    start_client_as(new_client_id()?, stop, address, keyspace)
}

/// Like [`start_client`], with a given client id, which must be unique.
pub fn start_client_as(
    id: ClientId,
    stop: &Stop,
    address: Ipv4Addr,
    keyspace: impl Into<Keyspace>,
) -> io::Result<(Client, JoinHandle<io::Result<()>>)> {
    let endpoint = UdpEndpoint::bind(SocketAddrV4::new(address, 0))?;
    let waker = Waker::new()?;
    stop.register(&waker);
    let wake = {
        let waker = waker.clone();
        Arc::new(move || waker.wake())
    };
    let (client, queue) = channel(wake);
    let value_bytes_max = LARGE_BYTES_MAX as usize;
    let core = ClientCore::new(Config { value_bytes_max, ..Config::new(id, keyspace) });
    let stop = stop.clone();
    let run = move || run(core, queue, endpoint, &waker, &stop);
    let thread = std::thread::Builder::new().name("client".into()).spawn(run)?;
    Ok((client, thread))
}

/// A new unique client id (R10).
pub fn new_client_id() -> io::Result<ClientId> {
    Ok(ClientId::new(now().unix_ms, crate::random()?))
}

/// Gives the client a new id if replicas have forgotten the old one.
pub fn renew_client_id(core: &mut ClientCore) -> io::Result<()> {
    if core.is_expired() {
        core.rename(new_client_id()?);
    }
    Ok(())
}

/// Receives up to this many batches and passes their datagrams to a client. Returns whether there
/// were any.
pub fn receive_into(
    core: &mut ClientCore,
    endpoint: &mut UdpEndpoint,
    batches_max: usize,
) -> io::Result<bool> {
    let mut received_at = None;
    for _ in 0..batches_max {
        let left = endpoint.receive(|message| {
            let now = *received_at.get_or_insert_with(now);
            core.handle_datagram(now, message.from, message.bytes);
        })?;
        if left != Left::More {
            break;
        }
    }
    Ok(received_at.is_some())
}

fn run(
    mut core: ClientCore,
    mut queue: CommandQueue,
    mut endpoint: UdpEndpoint,
    waker: &Waker,
    stop: &Stop,
) -> io::Result<()> {
    let mut busy_poll = BusyPoll::new(BusyPoll::DEFAULT);
    loop {
        queue.turn(now(), &mut core);
        endpoint.send_with(|out| core.poll_transmit(out))?;
        if stop.is_stopped() || queue.is_finished(&core) {
            return Ok(());
        }
        let deadline_ns = core.next_deadline();
        if !busy_poll.look(deadline_ns, || {
            Ok(receive_into(&mut core, &mut endpoint, RECEIVE_ROUNDS_MAX)? || waker.is_raised())
        })? {
            wait(&mut [readable(&endpoint), readable(waker)], deadline_ns)?;
            receive_into(&mut core, &mut endpoint, RECEIVE_ROUNDS_MAX)?;
        }
        waker.clear();
        let now = now();
        busy_poll.begin(now);
        renew_client_id(&mut core)?;
        if core.next_deadline().is_some_and(|deadline_ns| deadline_ns <= now.boot_ns) {
            core.handle_deadline(now);
        }
    }
}
