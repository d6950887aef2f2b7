//! Sends datagrams as GSO batches, in as few calls as possible.

use super::{BATCH_MAX, CONTROL_BYTES, Control, NOBODY};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Most bytes of a GSO batch.
const GSO_BYTES_MAX: usize = 65_000;

/// Sends datagrams as GSO batches.
pub(crate) struct SendBatch {
    /// Kinds of datagrams that can share a GSO batch, in order of first occurrence.
    kinds: Vec<u64>,
    /// (index of its kind, index of the datagram), ascending.
    order: Vec<(u8, u8)>,
    /// Whether the kernel supports GSO on this socket (before Linux 6.11 only if the device
    /// computes checksums).
    has_gso: bool,
}

impl SendBatch {
    pub(crate) fn new() -> Self {
        Self { kinds: Vec::with_capacity(BATCH_MAX), order: Vec::with_capacity(BATCH_MAX), has_gso: true }
    }

    /// Sends `count` datagrams, at most [`BATCH_MAX`], without blocking. Datagrams with the same
    /// destination and length are sent together. Returns how many the kernel refused.
    pub(crate) fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        count: usize,
        datagram: impl Fn(usize) -> (&'a [u8], SocketAddrV4),
    ) -> io::Result<usize> {
        assert!(count <= BATCH_MAX);
        self.arrange(count, &datagram);
        let (mut done, mut lost, mut has_gso) = (0, 0, self.has_gso);
        while done < count {
            let run = if has_gso { GSO_BYTES_MAX } else { 0 };
            match send_messages(socket, &self.order[done..], run, &datagram) {
                Ok(sent) => done += sent,
                // Without GSO from here on: for the rest of this batch, or for all later ones, too
                // (EIO).
                Err((error, length)) if length > 1 => {
                    has_gso = false;
                    self.has_gso = error.raw_os_error() != Some(libc::EIO);
                }
                Err((error, _)) => {
                    // The error belongs to the first datagram; the following ones are tried next.
                    if lost_before_the_wire(error)? {
                        (done, lost) = (done + 1, lost + 1);
                    }
                }
            }
        }
        Ok(lost)
    }

    fn arrange<'a>(&mut self, count: usize, datagram: impl Fn(usize) -> (&'a [u8], SocketAddrV4)) {
        self.kinds.clear();
        self.order.clear();
        for index in 0..count {
            let kind = kind(datagram(index));
            let known = self.kinds.iter().position(|&known| known == kind);
            let rank = known.unwrap_or_else(|| {
                self.kinds.push(kind);
                self.kinds.len() - 1
            });
            self.order.push((rank as u8, index as u8));
        }
        self.order.sort_unstable();
    }
}

/// A number that is equal for datagrams that can share a GSO batch.
fn kind((bytes, to): (&[u8], SocketAddrV4)) -> u64 {
    u64::from(to.ip().to_bits()) << 32 | u64::from(to.port()) << 16 | bytes.len() as u64
}

/// Sends all datagrams of `order` with one call, in GSO batches of at most `train_bytes_max` bytes.
/// Returns the number of datagrams sent, or the error of the first message and its number of
/// datagrams.
fn send_messages<'a>(
    socket: BorrowedFd<'_>,
    order: &[(u8, u8)],
    train_bytes_max: usize,
    datagram: impl Fn(usize) -> (&'a [u8], SocketAddrV4),
) -> Result<usize, (io::Error, usize)> {
    if let [(_, index)] = order {
        return send_one(socket, datagram((*index).into())).map(|()| 1).map_err(|error| (error, 1));
    }
    let mut addresses = [const { MaybeUninit::<libc::sockaddr_in>::uninit() }; BATCH_MAX];
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH_MAX];
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; BATCH_MAX];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH_MAX];
    for (vector, &(_, index)) in vectors.iter_mut().zip(order) {
        let (bytes, _) = datagram(index.into());
        vector.write(libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() });
    }
    // Number of datagrams in each message.
    let mut lengths = [0; BATCH_MAX];
    let (mut begin, mut count) = (0, 0);
    while begin < order.len() {
        let (bytes, to) = datagram(order[begin].1.into());
        let most = train_bytes_max.checked_div(bytes.len()).unwrap_or_default().max(1);
        let is_same = |&&(kind, _): &&(u8, u8)| kind == order[begin].0;
        let length = order[begin..].iter().take(most).take_while(is_same).count();
        addresses[count].write(system_address(to));
        // SAFETY: a zeroed header is valid (null pointers, zero lengths).
        let header = headers[count].write(unsafe { std::mem::zeroed() });
        header.msg_hdr.msg_name = addresses[count].as_mut_ptr().cast();
        header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
        header.msg_hdr.msg_iov = vectors[begin].as_mut_ptr();
        header.msg_hdr.msg_iovlen = length;
        if length > 1 {
            cut_into(&mut header.msg_hdr, controls[count].write(Control([0; CONTROL_BYTES])), bytes.len());
        }
        lengths[count] = length;
        (begin, count) = (begin + length, count + 1);
    }
    // SAFETY: `count` headers are initialised and point to memory that outlives the call. The call
    // only reads the datagrams' bytes.
    let sent = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), headers[0].as_mut_ptr(), count as u32, libc::MSG_DONTWAIT)
    };
    match usize::try_from(sent) {
        Ok(sent) => Ok(lengths[..sent].iter().sum()),
        Err(_) => Err((io::Error::last_os_error(), lengths[0])),
    }
}

fn system_address(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
        ..NOBODY
    }
}

/// Sends a single datagram with the cheapest call.
fn send_one(socket: BorrowedFd<'_>, (bytes, to): (&[u8], SocketAddrV4)) -> io::Result<()> {
    let address = system_address(to);
    // SAFETY: bytes and address outlive the call, which only reads them, up to the given lengths.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_DONTWAIT,
            (&raw const address).cast(),
            size_of::<libc::sockaddr_in>() as u32,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes a message a GSO batch: the kernel cuts it into datagrams of `bytes` bytes.
fn cut_into(header: &mut libc::msghdr, control: &mut Control, bytes: usize) {
    header.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: the control buffer has room for one control message with a `u16`, and the alignment
    // of its header.
    unsafe {
        header.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as usize;
        let message = libc::CMSG_FIRSTHDR(header);
        (*message).cmsg_level = libc::SOL_UDP;
        (*message).cmsg_type = libc::UDP_SEGMENT;
        (*message).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as usize;
        libc::CMSG_DATA(message).cast::<u16>().write_unaligned(bytes as u16);
    }
}

/// `true`: the kernel refused the datagram; `false`: a signal interrupted the call. Destinations
/// come from the network (a forged reply address may be a broadcast address), so only errors that
/// mean a broken socket or broken memory are returned.
fn lost_before_the_wire(error: io::Error) -> io::Result<bool> {
    match error.raw_os_error() {
        Some(libc::EINTR) => Ok(false),
        Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT) | None => Err(error),
        Some(_) => Ok(true),
    }
}
