//! The calls that no safe library offers: batches of datagrams, the option that shows where one was sent to, and the allocator's.
//!
//! All of the crate's `unsafe` is here. The rule that makes it sound: headers are filled in just before a call from
//! slices that outlive it, only as many as the call is told of, and the kernel writes at most the lengths they state.

#![allow(
    unsafe_code,
    reason = "recvmmsg, sendmmsg and IP_PKTINFO have no safe wrapper that reuses its buffers, malloc_trim has none"
)]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Most datagrams of one system call.
pub(crate) const BATCH_MAX: usize = 64;
/// Room for one datagram: more than the protocol's largest, so that a longer one is seen to be too long.
const BUFFER_BYTES: usize = 2048;
/// Room for one `IP_PKTINFO` message.
const CONTROL_BYTES: usize = 64;

/// A call asks for twice as many datagrams as the one before has brought, but at least for this many: preparing more
/// costs time that a lone request would wait for.
const BATCH_MIN: usize = 8;

/// Buffers for a batch of received datagrams, and who sent each.
pub(crate) struct ReceiveBatch {
    buffers: Box<[[u8; BUFFER_BYTES]]>,
    received: Vec<Received>,
    /// How many the last call has asked for.
    asked: usize,
}

#[derive(Clone, Copy)]
struct Received {
    length: usize,
    from: SocketAddrV4,
    /// Only with [`show_destination`].
    destination: Option<Ipv4Addr>,
}

impl ReceiveBatch {
    pub(crate) fn new() -> Self {
        Self {
            buffers: vec![[0; BUFFER_BYTES]; BATCH_MAX].into_boxed_slice(),
            received: Vec::with_capacity(BATCH_MAX),
            asked: BATCH_MIN,
        }
    }

    /// Receives what is there, at most [`BATCH_MAX`]; none is no error. Replaces the batch before.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.asked = (2 * self.received.len()).clamp(BATCH_MIN, BATCH_MAX);
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
        // SAFETY: `asked` headers are initialised and point to memory of the stated lengths that outlives the call.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers[0].as_mut_ptr(),
                self.asked as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let count = match usize::try_from(count) {
            Ok(count) => count,
            Err(_) => return nothing_there(io::Error::last_os_error()),
        };
        for index in 0..count {
            // SAFETY: initialised above, and the kernel reports no more than `asked`.
            let (header, address) =
                unsafe { (headers[index].assume_init_ref(), addresses[index].assume_init_ref()) };
            self.received.push(Received {
                length: header.msg_len as usize,
                from: SocketAddrV4::new(
                    Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)),
                    u16::from_be(address.sin_port),
                ),
                destination: destination(&header.msg_hdr),
            });
        }
        Ok(count)
    }

    /// Whether the last call was given all that it asked for.
    pub(crate) fn may_be_more(&self) -> bool {
        self.received.len() == self.asked
    }

    /// Sender, destination if shown, and bytes of datagram `index` of the batch.
    pub(crate) fn get(&mut self, index: usize) -> (SocketAddrV4, Option<Ipv4Addr>, &mut [u8]) {
        let Received { length, from, destination } = self.received[index];
        (from, destination, &mut self.buffers[index][..length])
    }

    /// Bytes of datagram `index` of the batch.
    pub(crate) fn bytes(&self, index: usize) -> &[u8] {
        &self.buffers[index][..self.received[index].length]
    }
}

const NOBODY: libc::sockaddr_in = libc::sockaddr_in {
    sin_family: libc::AF_INET as libc::sa_family_t,
    sin_port: 0,
    sin_addr: libc::in_addr { s_addr: 0 },
    sin_zero: [0; 8],
};

/// Control messages want the alignment of their header.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// The destination that an `IP_PKTINFO` message shows.
fn destination(header: &libc::msghdr) -> Option<Ipv4Addr> {
    // SAFETY: the kernel has set `msg_controllen` to what it wrote to `msg_control`, which is still there; the macros
    // walk no further, and the data of an IP_PKTINFO message is an `in_pktinfo`, read without assuming alignment.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(control) = message.as_ref() {
            if control.cmsg_level == libc::IPPROTO_IP && control.cmsg_type == libc::IP_PKTINFO {
                let info = libc::CMSG_DATA(message).cast::<libc::in_pktinfo>().read_unaligned();
                return Some(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)));
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    None
}

/// From now on each received datagram comes with its destination address.
pub(crate) fn show_destination(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option's value is an int that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_PKTINFO,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as u32,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends `datagrams`, at most [`BATCH_MAX`], without blocking. Returns how many were lost before the wire.
pub(crate) fn send<'a>(
    socket: BorrowedFd<'_>,
    datagrams: impl ExactSizeIterator<Item = (&'a [u8], SocketAddrV4)>,
) -> io::Result<usize> {
    let total = datagrams.len();
    assert!(total <= BATCH_MAX);
    let mut addresses = [const { MaybeUninit::<libc::sockaddr_in>::uninit() }; BATCH_MAX];
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH_MAX];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH_MAX];
    for (index, (bytes, to)) in datagrams.enumerate() {
        addresses[index].write(libc::sockaddr_in {
            sin_port: to.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from(*to.ip()).to_be() },
            ..NOBODY
        });
        vectors[index]
            .write(libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() });
        // SAFETY: a zeroed header is valid (null pointers, zero lengths).
        let header = headers[index].write(unsafe { std::mem::zeroed() });
        header.msg_hdr.msg_name = addresses[index].as_mut_ptr().cast();
        header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
        header.msg_hdr.msg_iov = vectors[index].as_mut_ptr();
        header.msg_hdr.msg_iovlen = 1;
    }
    let (mut done, mut lost) = (0, 0);
    while done < total {
        // SAFETY: headers from `done` to `total` are initialised and point to memory that outlives the call, which only
        // reads the datagrams' bytes.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                headers[done].as_mut_ptr(),
                (total - done) as u32,
                libc::MSG_DONTWAIT,
            )
        };
        match usize::try_from(sent) {
            Ok(sent) => done += sent,
            Err(_) => {
                // The error is that of the first datagram; the others are still to be tried.
                if lost_before_the_wire(io::Error::last_os_error())? {
                    (done, lost) = (done + 1, lost + 1);
                }
            }
        }
    }
    Ok(lost)
}

fn nothing_there(error: io::Error) -> io::Result<usize> {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR | libc::ECONNREFUSED) => Ok(0),
        _ => Err(error),
    }
}

/// True for a loss, false for an interruption. Destinations come from the network too (a forged place for replies may be a broadcast
/// address), so only what says that the socket or our memory is broken is an error.
fn lost_before_the_wire(error: io::Error) -> io::Result<bool> {
    match error.raw_os_error() {
        Some(libc::EINTR) => Ok(false),
        Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT) | None => Err(error),
        Some(_) => Ok(true),
    }
}

/// Gives back to the system what the allocator keeps of freed memory. Takes about a millisecond for 100 MB; does nothing where the C
/// library has no such call.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes the allocator's own locks, and moves nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
