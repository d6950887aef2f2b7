//! Thread of an initiator, and the handle with which other threads use it.

use super::view::{Known, View};
use crate::{Stop, UdpEndpoint, Waker, now};
use nicekv_objects::{
    Event, GetError, Handle, Initiator, InitiatorConfig, InitiatorCounters, Placed, PutError,
};
use nicekv_proto::chunk::ChunkId;
use nicekv_proto::placement::GroupRing;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use thiserror::Error;

/// Why a put or get of a chunk has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChunkClientError {
    /// The put has failed.
    #[error(transparent)]
    Put(#[from] PutError),
    /// The get has failed.
    #[error(transparent)]
    Get(#[from] GetError),
    /// The initiator has stopped.
    #[error("the initiator has ended")]
    Ended,
}

type TellPlaced = Sender<Result<Placed, PutError>>;
type TellGot = Sender<Result<Arc<[u8]>, GetError>>;

enum Ask {
    Put(ChunkId, Arc<[u8]>, TellPlaced),
    Get(ChunkId, TellGot),
    Counters(Sender<InitiatorCounters>),
}

/// Result of an operation that may still be running.
pub struct Pending<T, E>(Receiver<Result<T, E>>);

impl<T, E> Pending<T, E>
where
    ChunkClientError: From<E>,
{
    /// Waits for the result.
    ///
    /// # Errors
    /// The operation has failed, or the initiator has stopped.
    pub fn wait(self) -> Result<T, ChunkClientError> {
        Ok(self.0.recv().map_err(|_| ChunkClientError::Ended)??)
    }
}

/// Handle of an initiator. The initiator stops when the last clone is dropped.
#[derive(Clone)]
pub struct ChunkClient {
    /// `None` only during the drop.
    asks: Option<Sender<Ask>>,
    waker: Waker,
}

impl ChunkClient {
    /// Puts a chunk. The caller must have computed its id.
    pub fn put(&self, id: ChunkId, bytes: Arc<[u8]>) -> Pending<Placed, PutError> {
        let (tell, told) = channel();
        self.ask(Ask::Put(id, bytes, tell));
        Pending(told)
    }

    /// Gets a chunk.
    pub fn get(&self, id: ChunkId) -> Pending<Arc<[u8]>, GetError> {
        let (tell, told) = channel();
        self.ask(Ask::Get(id, tell));
        Pending(told)
    }

    /// Counters of the initiator.
    ///
    /// # Errors
    /// The initiator has stopped.
    pub fn counters(&self) -> Result<InitiatorCounters, ChunkClientError> {
        let (tell, told) = channel();
        self.ask(Ask::Counters(tell));
        told.recv().map_err(|_| ChunkClientError::Ended)
    }

    fn ask(&self, ask: Ask) {
        // If the initiator has stopped, the caller gets no answer.
        let _ = self.asks.as_ref().expect("until it is dropped").send(ask);
        self.waker.wake();
    }
}

impl Drop for ChunkClient {
    fn drop(&mut self) {
        // The sender is dropped before the wake-up, so that the thread notices if it was the last
        // one.
        self.asks = None;
        self.waker.wake();
    }
}

/// Starts an initiator, bound to `address` (unspecified: the kernel chooses), that uses the group
/// ring `ring`. `ask` queries the cluster's state. The initiator's thread ends at the `stop`, or
/// when the last clone of the returned handle is dropped.
///
/// # Errors
/// No socket or thread is available, or the window parameters are invalid.
pub fn start_chunk_client(
    stop: &Stop,
    address: Ipv4Addr,
    ring: GroupRing,
    config: InitiatorConfig,
    ask: impl FnMut() -> Option<Known> + Send + 'static,
) -> io::Result<(ChunkClient, JoinHandle<io::Result<()>>)> {
    let endpoint = UdpEndpoint::bind(SocketAddrV4::new(address, 0))?;
    let waker = Waker::new()?;
    stop.register(&waker);
    let core = Initiator::new(config, crate::random()?).map_err(io::Error::other)?;
    let view = View::begin("initiator", waker.clone(), ask)?;
    let (asks, asked) = channel();
    let (running, own) = (stop.clone(), waker.clone());
    let thread =
        Thread { core, endpoint, ring, view, waker: own, puts: HashMap::new(), gets: HashMap::new() };
    let run = move || thread.run(&running, &asked);
    let thread = std::thread::Builder::new().name("initiator".into()).spawn(run)?;
    Ok((ChunkClient { asks: Some(asks), waker }, thread))
}

struct Thread {
    core: Initiator,
    endpoint: UdpEndpoint,
    ring: GroupRing,
    view: View,
    waker: Waker,
    puts: HashMap<Handle, TellPlaced>,
    gets: HashMap<Handle, TellGot>,
}

impl Thread {
    fn run(mut self, stop: &Stop, asked: &Receiver<Ask>) -> io::Result<()> {
        while !self.view.end_with(stop) {
            let (deadline_ns, core) = (self.core.next_deadline(), &mut self.core);
            super::receive(&mut self.endpoint, &self.waker, deadline_ns, |now_ns, message| {
                core.handle_datagram(now_ns, message.bytes);
            })?;
            self.waker.clear();
            let now_ns = now().boot_ns;
            if self.take(now_ns, asked) && self.core.under_way() == 0 {
                return Ok(());
            }
            if let Some(known) = self.view.news() {
                self.core.set_map(now_ns, known.map);
            }
            if self.core.next_deadline() <= now_ns {
                self.core.handle_deadline(now_ns);
            }
            self.send(now_ns)?;
            self.tell();
        }
        Ok(())
    }

    /// Processes requests from handles. Returns whether all handles were dropped.
    fn take(&mut self, now_ns: u64, asked: &Receiver<Ask>) -> bool {
        loop {
            match asked.try_recv() {
                Ok(Ask::Put(id, bytes, tell)) => {
                    let handle = self.core.put(now_ns, id, bytes);
                    self.puts.insert(handle, tell);
                }
                Ok(Ask::Get(id, tell)) => {
                    let handle = self.core.get(now_ns, id);
                    self.gets.insert(handle, tell);
                }
                Ok(Ask::Counters(tell)) => {
                    let _ = tell.send(self.core.counters());
                }
                Err(error) => return error == std::sync::mpsc::TryRecvError::Disconnected,
            }
        }
    }

    /// Passes results to callers, which may have stopped waiting.
    fn tell(&mut self) {
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::Put(handle, result) => {
                    let _ = self.puts.remove(&handle).map(|tell| tell.send(result));
                }
                Event::Got(handle, result) => {
                    let _ = self.gets.remove(&handle).map(|tell| tell.send(result));
                }
                // Only targets count chunks.
                Event::Counted(..) => {}
                Event::NewerMap(_) => self.view.want(),
            }
        }
    }

    fn send(&mut self, now_ns: u64) -> io::Result<()> {
        let (core, ring) = (&mut self.core, &self.ring);
        self.endpoint.send_with(|out| {
            let send = core.poll_transmit(now_ns)?;
            out.extend_from_slice(&send.bytes);
            Some(super::address_of(ring, send.to))
        })
    }
}
