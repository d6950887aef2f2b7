//! A client: its thread has a connection to each server, and serves all callers.

use super::{ANSWER_BYTES, HEAD_BYTES, Head, STORED, targets_of};
use nicekv_proto::chunk::ChunkId;
use nicekv_runtime::{Waker, dial, interest, is_ready, now, readable, wait};
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

/// Time limit of a put: longer than a server's queue in front of a slow disk.
const PUT_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest sleep; a put wakes the thread.
const POLL: Duration = Duration::from_secs(1);

struct Ask {
    id: ChunkId,
    bytes: Arc<[u8]>,
    done: Sender<std::result::Result<(), String>>,
}

/// A put in flight.
pub(in crate::replicast_lab) struct Pending(Receiver<std::result::Result<(), String>>);

impl Pending {
    pub(in crate::replicast_lab) fn wait(self) -> std::result::Result<(), String> {
        match self.0.recv_timeout(PUT_TIMEOUT) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => Err("the servers by hash have not stored it in time".into()),
            Err(RecvTimeoutError::Disconnected) => Err("a connection to a server by hash has ended".into()),
        }
    }
}

/// A handle of the client. Its thread ends with the last clone.
#[derive(Clone)]
pub(in crate::replicast_lab) struct HashedClient {
    /// `None` only while it is dropped.
    asks: Option<Sender<Ask>>,
    waker: Waker,
}

impl HashedClient {
    /// Connects from the calling thread's network namespace.
    pub(in crate::replicast_lab) fn connect(servers: &[SocketAddrV4], copies: usize) -> io::Result<Self> {
        let waker = Waker::new()?;
        let connections = servers.iter().map(|server| Ok(Connection::new(dial(*server)?)));
        let connections = connections.collect::<io::Result<Vec<_>>>()?;
        let (asks, asked) = channel();
        let own = waker.clone();
        let mut thread = Thread { connections, copies, waker: own, asked, puts: HashMap::new(), sequence: 0 };
        let run = move || {
            // Callers get an error from their closed channels.
            if let Err(error) = thread.run() {
                eprintln!("nicekv: a client by hash has ended: {error}");
            }
        };
        std::thread::Builder::new().name("hashed-client".into()).spawn(run)?;
        Ok(Self { asks: Some(asks), waker })
    }

    /// Puts a chunk; `id` is the hash of its bytes.
    pub(in crate::replicast_lab) fn put(&self, id: ChunkId, bytes: Arc<[u8]>) -> Pending {
        let (done, result) = channel();
        // If the thread has ended, waiting fails.
        let _ = self.asks.as_ref().expect("until it is dropped").send(Ask { id, bytes, done });
        self.waker.wake();
        Pending(result)
    }
}

impl Drop for HashedClient {
    fn drop(&mut self) {
        self.asks = None;
        self.waker.wake();
    }
}

/// The caller of a put, and the number of answers that are missing.
struct Put {
    missing: usize,
    done: Sender<std::result::Result<(), String>>,
}

struct Thread {
    connections: Vec<Connection>,
    copies: usize,
    waker: Waker,
    asked: Receiver<Ask>,
    puts: HashMap<u64, Put>,
    sequence: u64,
}

struct Connection {
    stream: TcpStream,
    outgoing: VecDeque<Outgoing>,
    answer: [u8; ANSWER_BYTES],
    have: usize,
}

/// A chunk being sent; `sent` counts the bytes of head and chunk.
struct Outgoing {
    head: [u8; HEAD_BYTES],
    bytes: Arc<[u8]>,
    sent: usize,
}

impl Thread {
    fn run(&mut self) -> io::Result<()> {
        loop {
            let ready = self.wait()?;
            self.waker.clear();
            if self.take() && self.puts.is_empty() {
                return Ok(());
            }
            for (connection, is_ready) in self.connections.iter_mut().zip(ready) {
                if is_ready {
                    while let Some((sequence, is_stored)) = connection.read()? {
                        complete(&mut self.puts, sequence, is_stored);
                    }
                }
                connection.write()?;
            }
        }
    }

    fn wait(&self) -> io::Result<Vec<bool>> {
        let mut descriptors = vec![readable(&self.waker)];
        for connection in &self.connections {
            descriptors.push(interest(&connection.stream, true, !connection.outgoing.is_empty()));
        }
        wait(&mut descriptors, Some(now().after(POLL)))?;
        Ok(descriptors[1..].iter().map(is_ready).collect())
    }

    /// Takes new puts; true if there are no more callers.
    fn take(&mut self) -> bool {
        loop {
            match self.asked.try_recv() {
                Ok(Ask { id, bytes, done }) => {
                    self.sequence += 1;
                    let head = Head { sequence: self.sequence, id, length: bytes.len() as u32 }.encode();
                    for place in targets_of(&id, self.connections.len(), self.copies) {
                        let outgoing = Outgoing { head, bytes: bytes.clone(), sent: 0 };
                        self.connections[place].outgoing.push_back(outgoing);
                    }
                    self.puts.insert(self.sequence, Put { missing: self.copies, done });
                }
                Err(error) => return error == TryRecvError::Disconnected,
            }
        }
    }
}

/// Handles an answer of a server. The caller may have gone.
fn complete(puts: &mut HashMap<u64, Put>, sequence: u64, is_stored: bool) {
    let Some(put) = puts.get_mut(&sequence) else { return };
    put.missing -= usize::from(is_stored);
    let result = match (is_stored, put.missing) {
        (false, _) => Err("a server by hash has not stored it".into()),
        (true, 0) => Ok(()),
        (true, _) => return,
    };
    if let Some(put) = puts.remove(&sequence) {
        let _ = put.done.send(result);
    }
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        Self { stream, outgoing: VecDeque::new(), answer: [0; ANSWER_BYTES], have: 0 }
    }

    /// The next complete answer, if there is one.
    fn read(&mut self) -> io::Result<Option<(u64, bool)>> {
        while self.have < ANSWER_BYTES {
            match self.stream.read(&mut self.answer[self.have..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.have += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        self.have = 0;
        let sequence = u64::from_be_bytes(*self.answer.first_chunk().expect("it is longer"));
        Ok(Some((sequence, self.answer[ANSWER_BYTES - 1] == STORED)))
    }

    /// Writes as much as the socket takes.
    fn write(&mut self) -> io::Result<()> {
        while let Some(next) = self.outgoing.front_mut() {
            let head = &next.head[next.sent.min(HEAD_BYTES)..];
            let bytes = &next.bytes[next.sent.saturating_sub(HEAD_BYTES)..];
            match self.stream.write_vectored(&[IoSlice::new(head), IoSlice::new(bytes)]) {
                Ok(count) => next.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // `NotConnected`: before the connection is established.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            if next.sent == HEAD_BYTES + next.bytes.len() {
                self.outgoing.pop_front();
            }
        }
        Ok(())
    }
}
