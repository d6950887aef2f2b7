//! The TCP connections by which joiners copy (R7): those that this node has dialled and those that it has accepted.

use crate::{FrameLimits, FramedStream, PollFd, accept, dial, readable};
use nicekv_node::StreamPeer;
use nicekv_replication::Replica;
use nicekv_wire::Now;
use nicekv_wire::recovery::FRAME_BYTES_MAX;
use std::io;
use std::net::TcpListener;

/// Most connections in each direction; beyond it a frame is dropped, and its sender repeats it.
const STREAMS_MAX: usize = 64;
/// Each side keeps one frame per partition in flight.
const LIMITS: FrameLimits =
    FrameLimits { frame_bytes_max: FRAME_BYTES_MAX, output_bytes_max: 16 * FRAME_BYTES_MAX };

pub(super) struct Streams {
    listener: TcpListener,
    open: Vec<(StreamPeer, FramedStream)>,
    accepted: u64,
}

impl Streams {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, open: Vec::new(), accepted: 0 }
    }

    fn is_full(&self) -> bool {
        self.open.len() >= 2 * STREAMS_MAX
    }

    pub(super) fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        let listener = (!self.is_full()).then(|| readable(&self.listener));
        listener.into_iter().chain(self.open.iter().map(|(_, stream)| stream.interest()))
    }

    /// Accepts, and hands frames to the core. A broken stream is forgotten: whoever waits on it asks again.
    pub(super) fn receive(&mut self, now: Now, core: &mut Replica) -> io::Result<()> {
        while !self.is_full()
            && let Some(stream) = accept(&self.listener)?
        {
            self.accepted += 1;
            self.open.push((StreamPeer::Accepted(self.accepted), FramedStream::new(stream, LIMITS)));
        }
        self.open.retain_mut(|(peer, stream)| {
            stream.receive(|frame| core.handle_stream(now, *peer, frame)).is_ok()
        });
        Ok(())
    }

    /// Sends the core's frames, dialling where it is the first one.
    pub(super) fn send(&mut self, core: &mut Replica) {
        while let Some((peer, frame)) = core.poll_stream() {
            if let Some(stream) = self.stream(peer) {
                // A peer that does not read loses the frame and asks again.
                let _ = stream.queue(&frame);
            }
        }
        self.open.retain_mut(|(_, stream)| stream.flush().is_ok());
    }

    fn stream(&mut self, peer: StreamPeer) -> Option<&mut FramedStream> {
        let known = self.open.iter().position(|(open, _)| *open == peer);
        let index = match (known, peer) {
            (Some(index), _) => index,
            (None, StreamPeer::Dialed(address)) if !self.is_full() => {
                self.open.push((peer, FramedStream::new(dial(address).ok()?, LIMITS)));
                self.open.len() - 1
            }
            _ => return None,
        };
        Some(&mut self.open[index].1)
    }
}
