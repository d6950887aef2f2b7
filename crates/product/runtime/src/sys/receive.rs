//! Receives many datagrams with one call.

use super::{BATCH_MAX, CONTROL_BYTES, Control, NOBODY, Notes};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Buffer per message: the longest UDP payload.
const BUFFER_BYTES: usize = 1 << 16;
/// A call requests twice as many messages as the last one received, but at least this many.
/// Preparing more would delay a single request.
const BATCH_MIN: usize = 8;
/// While messages arrive one at a time, only one of this many calls requests more than one message:
/// checking for a second one would cost a twentieth of a get.
const LONE_CALLS: u32 = 8;

/// Buffers for a batch of received datagrams, with their senders.
pub(crate) struct ReceiveBatch {
    /// One per message. The kernel provides the memory when a buffer is first written to.
    buffers: Box<[[u8; BUFFER_BYTES]]>,
    received: Vec<Received>,
    /// Number of messages that the last call requested, and that it received.
    asked: usize,
    got: usize,
    /// Consecutive calls that received one message each.
    lone: u32,
}

/// Whether the socket may have more datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// No: the last call received fewer messages than it requested.
    Nothing,
    /// Unknown: the call requested only one message, because the last ones arrived one at a time.
    /// Process it before the next call.
    Unknown,
    /// Probably: the call received as many messages as it requested.
    More,
}

/// Location of a datagram in a buffer.
#[derive(Clone, Copy)]
struct Received {
    buffer: usize,
    begin: usize,
    end: usize,
    from: SocketAddrV4,
    /// Set only on sockets with [`show_destination`].
    destination: Option<Ipv4Addr>,
}

impl ReceiveBatch {
    pub(crate) fn new() -> Self {
        Self {
            buffers: vec![[0; BUFFER_BYTES]; BATCH_MAX].into_boxed_slice(),
            received: Vec::with_capacity(BATCH_MAX),
            asked: BATCH_MIN,
            got: 0,
            lone: 0,
        }
    }

    /// Receives the messages that have arrived, at most [`BATCH_MAX`]; it is no error if there are
    /// none. Replaces the previous batch, and returns the number of datagrams.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let is_alone = self.lone > 1 && !self.lone.is_multiple_of(LONE_CALLS);
        self.asked = if is_alone { 1 } else { (2 * self.got).clamp(BATCH_MIN, BATCH_MAX) };
        self.got = 0;
        self.received.clear();
        let mut addresses = [const { MaybeUninit::<libc::sockaddr_in>::uninit() }; BATCH_MAX];
        let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH_MAX];
        let mut controls = [const { MaybeUninit::<Control>::uninit() }; BATCH_MAX];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH_MAX];
        for (index, buffer) in self.buffers[..self.asked].iter_mut().enumerate() {
            vectors[index].write(libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: BUFFER_BYTES });
            let address = addresses[index].write(NOBODY);
            // SAFETY: a zeroed header is valid (null pointers, zero lengths).
            let header = headers[index].write(unsafe { std::mem::zeroed() });
            header.msg_hdr.msg_name = std::ptr::from_mut(address).cast();
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
            header.msg_hdr.msg_iov = vectors[index].as_mut_ptr();
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = controls[index].as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES;
        }
        // SAFETY: `asked` headers are initialised, and point to memory that has the stated lengths
        // and outlives the call.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers[0].as_mut_ptr(),
                self.asked as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        self.got = match usize::try_from(count) {
            Ok(count) => count,
            Err(_) => return nothing_there(io::Error::last_os_error()),
        };
        self.lone = match self.got {
            0 => self.lone,
            1 => self.lone.wrapping_add(1),
            _ => 0,
        };
        for index in 0..self.got {
            // SAFETY: they were initialised above, and the kernel reports no more than `asked`
            // messages.
            let (header, address) =
                unsafe { (headers[index].assume_init_ref(), addresses[index].assume_init_ref()) };
            let from = SocketAddrV4::new(
                Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)),
                u16::from_be(address.sin_port),
            );
            self.split(index, header, from);
        }
        Ok(self.received.len())
    }

    /// Splits a received message (a GRO batch) into its datagrams.
    fn split(&mut self, buffer: usize, header: &libc::mmsghdr, from: SocketAddrV4) {
        let notes = Notes::read(&header.msg_hdr);
        let length = (header.msg_len as usize).min(BUFFER_BYTES);
        let segment = notes.segment.unwrap_or(length).max(1);
        let mut begin = 0;
        loop {
            let end = (begin + segment).min(length);
            self.received.push(Received { buffer, begin, end, from, destination: notes.destination });
            begin = end;
            if begin == length {
                return;
            }
        }
    }

    /// Whether datagrams may be left after the last call.
    pub(crate) fn left(&self) -> Left {
        match self.asked {
            asked if self.got < asked => Left::Nothing,
            1 => Left::Unknown,
            _ => Left::More,
        }
    }

    /// Sender, destination (if enabled), and bytes of datagram `index` of the batch.
    pub(crate) fn get(&mut self, index: usize) -> (SocketAddrV4, Option<Ipv4Addr>, &mut [u8]) {
        let Received { buffer, begin, end, from, destination } = self.received[index];
        (from, destination, &mut self.buffers[buffer][begin..end])
    }

    /// Bytes of datagram `index` of the batch.
    pub(crate) fn bytes(&self, index: usize) -> &[u8] {
        let Received { buffer, begin, end, .. } = self.received[index];
        &self.buffers[buffer][begin..end]
    }
}

fn nothing_there(error: io::Error) -> io::Result<usize> {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR | libc::ECONNREFUSED) => Ok(0),
        _ => Err(error),
    }
}
