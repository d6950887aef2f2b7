//! Thread of an initiator, and the handle of other threads to it.

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

/// Why a chunk was not put or got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChunkClientError {
    /// See [`PutError`].
    #[error(transparent)]
    Put(#[from] PutError),
    /// See [`GetError`].
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

/// A pending result.
pub struct Pending<T, E>(Receiver<Result<T, E>>);

impl<T, E> Pending<T, E>
where
    ChunkClientError: From<E>,
{
    /// Waits for the result.
    ///
    /// # Errors
    /// Why the operation failed.
    pub fn wait(self) -> Result<T, ChunkClientError> {
        Ok(self.0.recv().map_err(|_| ChunkClientError::Ended)??)
    }
}

/// Handle of an initiator, which ends with the last clone.
#[derive(Clone)]
pub struct ChunkClient {
    /// `None` only while it is dropped.
    asks: Option<Sender<Ask>>,
    waker: Waker,
}

impl ChunkClient {
    /// Puts a chunk; the caller computes its id.
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

    /// Its counters.
    ///
    /// # Errors
    /// The initiator has stopped.
    pub fn counters(&self) -> Result<InitiatorCounters, ChunkClientError> {
        let (tell, told) = channel();
        self.ask(Ask::Counters(tell));
        told.recv().map_err(|_| ChunkClientError::Ended)
    }

    fn ask(&self, ask: Ask) {
        // If it has stopped, no answer comes.
        let _ = self.asks.as_ref().expect("until it is dropped").send(ask);
        self.waker.wake();
    }
}

impl Drop for ChunkClient {
    fn drop(&mut self) {
        // The sender must be gone before the wake-up, so that the thread notices that it was the
        // last one.
        self.asks = None;
        self.waker.wake();
    }
}

/// Starts an initiator, bound to `address` (unspecified: the kernel chooses), with the group ring
/// `ring`. `ask` queries the cluster's state. Its thread ends when `stop` says so, or with the last
/// clone of the returned handle.
/// so, or when all clones of the returned handle are gone.
///
/// No socket or thread is available, or the window parameters are invalid.
/// If there is no socket for it, or no thread, or its windows cannot be.
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

    /// Processes requests of handles. Returns whether all handles are gone.
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

    /// The caller may have gone.
    fn tell(&mut self) {
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::Put(handle, result) => {
                    let _ = self.puts.remove(&handle).map(|tell| tell.send(result));
                }
                Event::Got(handle, result) => {
                    let _ = self.gets.remove(&handle).map(|tell| tell.send(result));
                }
                // Only targets count.
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
