//! The calls that no safe library offers: batches of datagrams, and options of a socket.
//!
//! ```text
//!   datagrams ─▶ by destination and length ─▶ trains ─ sendmmsg ─▶ one packet per train, cut where the path demands it
//!   recvmmsg ─▶ what the path has merged ─▶ datagrams
//! ```
//!
//! A *train* is one message that the kernel carries as one packet as far as it can (`UDP_SEGMENT`, `UDP_GRO`): most of the cost of a
//! datagram is paid once for all of them.
//!
//! All of the crate's `unsafe` is here and in `memory`. The rule that makes it sound: headers are filled in just before a call from
//! slices that outlive it, only as many as the call is told of, and the kernel writes at most the lengths they state.

#![allow(
    unsafe_code,
    reason = "recvmmsg, sendmmsg and some options have no safe wrapper that reuses its buffers"
)]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Most datagrams of one call that sends, most messages of one that receives.
pub(crate) const BATCH_MAX: usize = 64;
/// Room for what one message may hold: the longest UDP payload.
const BUFFER_BYTES: usize = 1 << 16;
/// Longest train.
const TRAIN_BYTES_MAX: usize = 65_000;
/// Room for an `IP_PKTINFO` message and one that states the length of merged datagrams.
const CONTROL_BYTES: usize = 64;

/// A call asks for twice as many messages as the one before has brought, but at least for this many: preparing more
/// costs time that a lone request would wait for.
const BATCH_MIN: usize = 8;

/// Buffers for a batch of received datagrams, and who sent each.
pub(crate) struct ReceiveBatch {
    /// One per message; the system gives memory to what was written to.
    buffers: Box<[[u8; BUFFER_BYTES]]>,
    received: Vec<Received>,
    /// How many messages the last call has asked for, and has got.
    asked: usize,
    got: usize,
}

/// A datagram: where it is in which buffer.
#[derive(Clone, Copy)]
struct Received {
    buffer: usize,
    begin: usize,
    end: usize,
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
            got: 0,
        }
    }

    /// Receives what is there, at most [`BATCH_MAX`] messages; none is no error. Replaces the batch before, and returns the number of
    /// datagrams.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.asked = (2 * self.got).clamp(BATCH_MIN, BATCH_MAX);
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
        self.got = match usize::try_from(count) {
            Ok(count) => count,
            Err(_) => return nothing_there(io::Error::last_os_error()),
        };
        for index in 0..self.got {
            // SAFETY: initialised above, and the kernel reports no more than `asked`.
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

    /// The datagrams of one message.
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

    /// Whether the last call was given all that it asked for.
    pub(crate) fn may_be_more(&self) -> bool {
        self.got == self.asked
    }

    /// Sender, destination if shown, and bytes of datagram `index` of the batch.
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

const NOBODY: libc::sockaddr_in = libc::sockaddr_in {
    sin_family: libc::AF_INET as libc::sa_family_t,
    sin_port: 0,
    sin_addr: libc::in_addr { s_addr: 0 },
    sin_zero: [0; 8],
};

/// Control messages want the alignment of their header.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// What the kernel says about a message.
#[derive(Default)]
struct Notes {
    destination: Option<Ipv4Addr>,
    /// Length of each of its datagrams but the last, which may be shorter.
    segment: Option<usize>,
    /// Only with [`stamp_received`].
    stamped_unix_ns: Option<u64>,
}

impl Notes {
    fn read(header: &libc::msghdr) -> Self {
        let mut notes = Self::default();
        // SAFETY: the kernel has set `msg_controllen` to what it wrote to `msg_control`, which is still there; the macros
        // walk no further, and the data of these messages are an `in_pktinfo`, an int and a `timespec`, read without assuming alignment.
        unsafe {
            let mut message = libc::CMSG_FIRSTHDR(header);
            while let Some(control) = message.as_ref() {
                match (control.cmsg_level, control.cmsg_type) {
                    (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                        let info = libc::CMSG_DATA(message).cast::<libc::in_pktinfo>().read_unaligned();
                        notes.destination = Some(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)));
                    }
                    (libc::SOL_UDP, libc::UDP_GRO) => {
                        let segment = libc::CMSG_DATA(message).cast::<libc::c_int>().read_unaligned();
                        notes.segment = usize::try_from(segment).ok();
                    }
                    (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                        let at = libc::CMSG_DATA(message).cast::<libc::timespec>().read_unaligned();
                        notes.stamped_unix_ns = Some(at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64);
                    }
                    _ => {}
                }
                message = libc::CMSG_NXTHDR(header, message);
            }
        }
        notes
    }
}

/// From now on each received datagram comes with its destination address.
pub(crate) fn show_destination(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)
}

/// From now on datagrams that arrive together may be received as one message.
pub(crate) fn merge_received(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// From now on nothing that is sent is fragmented, which no switch would pass on.
pub(crate) fn never_fragment(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
}

/// From now on what is received comes with when the kernel got it.
pub(crate) fn stamp_received(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// Of a packet that a packet socket has received.
pub(crate) struct Stamped {
    /// The interface.
    pub(crate) ifindex: u32,
    /// It was sent there, not received.
    pub(crate) is_outgoing: bool,
    /// When, by the wall clock.
    pub(crate) at_unix_ns: u64,
    /// Bytes of it that were wanted.
    pub(crate) length: usize,
}

/// Receives a packet, or as much of it as `bytes` has room for, on a socket of [`stamp_received`].
pub(crate) fn receive_stamped(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<Stamped> {
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = Control([0; CONTROL_BYTES]);
    // SAFETY: these are plain data, of which zeros are values.
    let (mut address, mut header) =
        unsafe { (std::mem::zeroed::<libc::sockaddr_ll>(), std::mem::zeroed::<libc::msghdr>()) };
    header.msg_name = (&raw mut address).cast();
    header.msg_namelen = size_of::<libc::sockaddr_ll>() as u32;
    (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
    (header.msg_control, header.msg_controllen) = (control.0.as_mut_ptr().cast(), CONTROL_BYTES);
    // SAFETY: everything that the header names outlives the call, in the lengths that it states.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let at_unix_ns = Notes::read(&header).stamped_unix_ns.ok_or(io::ErrorKind::InvalidData)?;
    let is_outgoing = address.sll_pkttype == libc::PACKET_OUTGOING;
    Ok(Stamped { ifindex: address.sll_ifindex as u32, is_outgoing, at_unix_ns, length })
}

fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the option's value is an int that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as u32,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends datagrams as trains.
pub(crate) struct SendBatch {
    /// What can be of one train, in the order in which it first occurs.
    kinds: Vec<u64>,
    /// (index of its kind, index of the datagram), ascending.
    order: Vec<(u8, u8)>,
    /// Whether the kernel takes trains (before Linux 6.11 it does so only if the device computes checksums).
    has_trains: bool,
}

impl SendBatch {
    pub(crate) fn new() -> Self {
        Self { kinds: Vec::with_capacity(BATCH_MAX), order: Vec::with_capacity(BATCH_MAX), has_trains: true }
    }

    /// Sends `count` datagrams, at most [`BATCH_MAX`], without blocking; each is followed by those of its destination and length. Returns
    /// how many were lost before the wire.
    pub(crate) fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        count: usize,
        datagram: impl Fn(usize) -> (&'a [u8], SocketAddrV4),
    ) -> io::Result<usize> {
        assert!(count <= BATCH_MAX);
        self.arrange(count, &datagram);
        let (mut done, mut lost, mut has_trains) = (0, 0, self.has_trains);
        while done < count {
            let run = if has_trains { TRAIN_BYTES_MAX } else { 0 };
            match send_messages(socket, &self.order[done..], run, &datagram) {
                Ok(sent) => done += sent,
                // One by one, for the rest of the batch, or for ever.
                Err((error, length)) if length > 1 => {
                    has_trains = false;
                    self.has_trains = error.raw_os_error() != Some(libc::EIO);
                }
                Err((error, _)) => {
                    // The error is that of the first datagram; the others are still to be tried.
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

/// Equal for datagrams that can be of one train.
fn kind((bytes, to): (&[u8], SocketAddrV4)) -> u64 {
    u64::from(to.ip().to_bits()) << 32 | u64::from(to.port()) << 16 | bytes.len() as u64
}

/// One call with all datagrams of `order`; a train has at most `train_bytes_max`. Returns how many were sent, or why the first message was
/// not, and of how many datagrams it is.
fn send_messages<'a>(
    socket: BorrowedFd<'_>,
    order: &[(u8, u8)],
    train_bytes_max: usize,
    datagram: impl Fn(usize) -> (&'a [u8], SocketAddrV4),
) -> Result<usize, (io::Error, usize)> {
    let mut addresses = [const { MaybeUninit::<libc::sockaddr_in>::uninit() }; BATCH_MAX];
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH_MAX];
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; BATCH_MAX];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH_MAX];
    for (vector, &(_, index)) in vectors.iter_mut().zip(order) {
        let (bytes, _) = datagram(index.into());
        vector.write(libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() });
    }
    // Datagrams of each message.
    let mut lengths = [0; BATCH_MAX];
    let (mut begin, mut count) = (0, 0);
    while begin < order.len() {
        let (bytes, to) = datagram(order[begin].1.into());
        let most = train_bytes_max.checked_div(bytes.len()).unwrap_or_default().max(1);
        let is_same = |&&(kind, _): &&(u8, u8)| kind == order[begin].0;
        let length = order[begin..].iter().take(most).take_while(is_same).count();
        addresses[count].write(libc::sockaddr_in {
            sin_port: to.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from(*to.ip()).to_be() },
            ..NOBODY
        });
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
    // SAFETY: `count` headers are initialised and point to memory that outlives the call, which only reads the datagrams' bytes.
    let sent = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), headers[0].as_mut_ptr(), count as u32, libc::MSG_DONTWAIT)
    };
    match usize::try_from(sent) {
        Ok(sent) => Ok(lengths[..sent].iter().sum()),
        Err(_) => Err((io::Error::last_os_error(), lengths[0])),
    }
}

/// Makes a message a train of datagrams of this length.
fn cut_into(header: &mut libc::msghdr, control: &mut Control, bytes: usize) {
    header.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: the control buffer has room for one message with a `u16`, and the alignment that its header wants.
    unsafe {
        header.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as usize;
        let message = libc::CMSG_FIRSTHDR(header);
        (*message).cmsg_level = libc::SOL_UDP;
        (*message).cmsg_type = libc::UDP_SEGMENT;
        (*message).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as usize;
        libc::CMSG_DATA(message).cast::<u16>().write_unaligned(bytes as u16);
    }
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

/// Whether an interface is up and has a signal.
pub(crate) fn has_carrier(socket: BorrowedFd<'_>, device: &str) -> io::Result<bool> {
    // SAFETY: all zeros are a request without a name and flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    if device.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    request.ifr_name.iter_mut().zip(device.bytes()).for_each(|(place, byte)| *place = byte as libc::c_char);
    // SAFETY: the kernel reads the name and writes the flags, all within the request, which outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: this request's answer is flags.
    let flags = i32::from(unsafe { request.ifr_ifru.ifru_flags });
    Ok(flags & libc::IFF_UP != 0 && flags & libc::IFF_RUNNING != 0)
}
