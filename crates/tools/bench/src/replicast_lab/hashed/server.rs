//! A server: one thread for its connections, and one for its disk.

use super::{ANSWER_BYTES, HEAD_BYTES, Head, NOT_STORED, STORED};
use crate::error::{BenchError, Result};
use nicekv_objects::{End, Storage, StorageDone};
use nicekv_proto::chunk::CHUNK_LENGTH_MAX;
use nicekv_proto::{ClientId, OpId};
use nicekv_runtime::chunks::{ChunkDisk, ChunkStore, Told};
use nicekv_runtime::{Stop, Waker, accept, interest, is_ready, listen, readable, wait};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::thread::JoinHandle;

/// Each client has one connection.
const CONNECTIONS_MAX: usize = 64;
/// Bytes handed to the disk at once.
const PIECE_BYTES: usize = 128 << 10;
/// Pieces read from a connection before the others have their turn.
const PIECES_MAX: usize = 8;
/// Maximum bytes queued for the disk, as at a target; above it nothing is read.
const QUEUED_BYTES_MAX: u64 = 64 << 20;

/// A running server, ended when it is dropped.
pub(in crate::replicast_lab) struct HashedServer {
    stop: Stop,
    thread: Option<JoinHandle<io::Result<()>>>,
    address: SocketAddrV4,
}

impl HashedServer {
    /// Starts one in the calling thread's network namespace.
    pub(in crate::replicast_lab) fn start(address: SocketAddrV4, store: ChunkStore) -> Result<Self> {
        let failed = || BenchError::system(format!("start a server at {address}"));
        let (stop, waker) = (Stop::new(), Waker::new().map_err(failed())?);
        stop.register(&waker);
        let listener = listen(address).map_err(failed())?;
        let disk = ChunkDisk::begin("hashed", store, waker.clone()).map_err(failed())?;
        let queue = Queue { disk, lengths: HashMap::new(), bytes: 0 };
        let server = Server { listener, queue, waker, connections: Vec::new() };
        let running = stop.clone();
        let thread = std::thread::Builder::new().name("hashed".into()).spawn(move || server.run(&running));
        Ok(Self { stop, thread: Some(thread.map_err(failed())?), address })
    }
}

impl Drop for HashedServer {
    fn drop(&mut self) {
        self.stop.stop();
        // Its clients got no answers then, and have failed, too.
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("nicekv: the server at {} has ended: {error}", self.address);
        }
    }
}

struct Server {
    listener: TcpListener,
    queue: Queue,
    waker: Waker,
    /// Indexed by the client number in the ops of their chunks; `None` after the end of a
    /// connection.
    connections: Vec<Option<Connection>>,
}

/// The disk, and the chunks that it has not finished.
struct Queue {
    disk: ChunkDisk,
    lengths: HashMap<OpId, u32>,
    /// Sum of their lengths.
    bytes: u64,
}

struct Connection {
    number: u64,
    stream: TcpStream,
    head: Filling,
    coming: Option<Coming>,
    answers: Vec<u8>,
}

/// A head being received.
struct Filling {
    bytes: [u8; HEAD_BYTES],
    have: usize,
}

/// A chunk being received; the disk has all bytes before `offset`.
struct Coming {
    op: OpId,
    length: u32,
    offset: u32,
    piece: Vec<u8>,
    have: usize,
}

impl Server {
    fn run(mut self, stop: &Stop) -> io::Result<()> {
        while !stop.is_stopped() {
            let ready = self.wait()?;
            self.waker.clear();
            self.answer()?;
            if let Some(stream) = accept(&self.listener)?
                && self.connections.len() < CONNECTIONS_MAX
            {
                self.connections.push(Some(Connection::new(self.connections.len() as u64, stream)));
            }
            for number in ready {
                let Some(connection) = &mut self.connections[number] else { continue };
                // A closed connection is not a failure.
                let served = connection.read(&mut self.queue).and_then(|()| connection.write());
                if served.is_err() {
                    self.connections[number] = None;
                }
            }
        }
        Ok(())
    }

    /// Waits for input; returns the connections that are ready.
    fn wait(&mut self) -> io::Result<Vec<usize>> {
        let has_room = self.queue.bytes < QUEUED_BYTES_MAX;
        let open: Vec<usize> =
            (0..self.connections.len()).filter(|number| self.connections[*number].is_some()).collect();
        let mut descriptors = vec![readable(&self.listener), readable(&self.waker)];
        for connection in self.connections.iter().flatten() {
            descriptors.push(interest(&connection.stream, has_room, !connection.answers.is_empty()));
        }
        wait(&mut descriptors, None)?;
        let ready = open.into_iter().zip(&descriptors[2..]).filter(|(_, descriptor)| is_ready(descriptor));
        Ok(ready.map(|(number, _)| number).collect())
    }

    /// Answers the chunks that the disk has finished.
    fn answer(&mut self) -> io::Result<()> {
        while let Ok(event) = self.queue.disk.told.try_recv() {
            match event {
                Told::Done(StorageDone::Finished { op, end }) => {
                    self.queue.bytes -= u64::from(self.queue.lengths.remove(&op).unwrap_or(0));
                    let Some(Some(connection)) = self.connections.get_mut(op.client.0 as usize) else {
                        continue;
                    };
                    connection.answers.extend_from_slice(&op.sequence.to_be_bytes());
                    connection.answers.push(if end == End::Whole { STORED } else { NOT_STORED });
                }
                Told::Done(StorageDone::Read { .. }) | Told::Free(_) => {}
                Told::Failed(error) => return Err(io::Error::other(error)),
            }
        }
        // The socket has room for a few bytes.
        for connection in self.connections.iter_mut().flatten() {
            let _ = connection.write();
        }
        Ok(())
    }
}

impl Connection {
    fn new(number: u64, stream: TcpStream) -> Self {
        let head = Filling { bytes: [0; HEAD_BYTES], have: 0 };
        Self { number, stream, head, coming: None, answers: Vec::with_capacity(ANSWER_BYTES) }
    }

    /// Reads up to [`PIECES_MAX`] pieces.
    fn read(&mut self, queue: &mut Queue) -> io::Result<()> {
        let mut pieces = 0;
        while pieces < PIECES_MAX {
            let read = match &mut self.coming {
                None => self.stream.read(&mut self.head.bytes[self.head.have..]),
                Some(coming) => self.stream.read(&mut coming.piece[coming.have..]),
            };
            match read {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => pieces += usize::from(self.take(count, queue)?),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Handles `count` more bytes; true if they completed a piece for the disk.
    fn take(&mut self, count: usize, queue: &mut Queue) -> io::Result<bool> {
        let Some(coming) = &mut self.coming else {
            self.head.have += count;
            if self.head.have == HEAD_BYTES {
                self.head.have = 0;
                self.begin(queue)?;
            }
            return Ok(false);
        };
        coming.have += count;
        if coming.have < coming.piece.len() {
            return Ok(false);
        }
        let Coming { op, offset, .. } = *coming;
        let left = coming.length - offset - coming.have as u32;
        let bytes = std::mem::replace(&mut coming.piece, vec![0; PIECE_BYTES.min(left as usize)]);
        (coming.offset, coming.have) = (offset + bytes.len() as u32, 0);
        queue.disk.ask(Storage::Write { op, offset, bytes });
        if left == 0 {
            queue.disk.ask(Storage::Finish { op });
            self.coming = None;
        }
        Ok(true)
    }

    fn begin(&mut self, queue: &mut Queue) -> io::Result<()> {
        let Head { sequence, id, length } = Head::decode(&self.head.bytes);
        if !(1..=CHUNK_LENGTH_MAX).contains(&length) {
            return Err(ErrorKind::InvalidData.into());
        }
        let op = OpId { client: ClientId(self.number), sequence };
        queue.bytes += u64::from(length);
        queue.lengths.insert(op, length);
        queue.disk.ask(Storage::Begin { op, id, bytes: length, holders: Vec::new() });
        let piece = vec![0; PIECE_BYTES.min(length as usize)];
        self.coming = Some(Coming { op, length, offset: 0, piece, have: 0 });
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.answers.is_empty() {
            match self.stream.write(&self.answers) {
                Ok(count) => drop(self.answers.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
