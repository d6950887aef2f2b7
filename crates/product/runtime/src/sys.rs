//! System calls that have no safe wrapper: batches of datagrams, and socket options.
//!
//! ```text
//!   datagrams ─▶ grouped by destination and length ─▶ GSO batches ─ sendmmsg ─▶ one packet per batch, segmented by the kernel or device
//!   recvmmsg ─▶ GRO batches ─▶ split into datagrams
//! ```
//!
//! A *GSO batch* is one message of several datagrams, which the kernel carries as one packet as far
//! as it can (`UDP_SEGMENT`, `UDP_GRO`): most of the cost per datagram is paid once per batch.
//!
//! All `unsafe` code of datagrams and sockets is here. It is sound because headers are filled in
//! just before each call, from slices that outlive the call; the call gets the number of filled
//! headers; and the kernel writes at most the lengths that they state.

#![allow(
    unsafe_code,
    reason = "recvmmsg, sendmmsg and some options have no safe wrapper that reuses its buffers"
)]

mod receive;
mod send;

pub use receive::Left;
pub(crate) use receive::ReceiveBatch;
pub(crate) use send::SendBatch;

use std::io;
use std::mem::size_of;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Most datagrams per sending call, and most messages per receiving call.
pub(crate) const BATCH_MAX: usize = 64;
/// Control buffer size: room for an `IP_PKTINFO` message and a GRO segment length.
const CONTROL_BYTES: usize = 64;

const NOBODY: libc::sockaddr_in = libc::sockaddr_in {
    sin_family: libc::AF_INET as libc::sa_family_t,
    sin_port: 0,
    sin_addr: libc::in_addr { s_addr: 0 },
    sin_zero: [0; 8],
};

/// A control buffer, aligned for the headers of control messages.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Control messages that the kernel attaches to a received message.
#[derive(Default)]
struct Notes {
    destination: Option<Ipv4Addr>,
    /// Length of each datagram of a GRO batch except the last, which may be shorter.
    segment: Option<usize>,
    /// Set only on sockets with [`stamp_received`].
    stamped_unix_ns: Option<u64>,
}

impl Notes {
    fn read(header: &libc::msghdr) -> Self {
        let mut notes = Self::default();
        // SAFETY: the kernel has set `msg_controllen` to the length that it wrote to `msg_control`,
        // and that buffer is still alive. The macros read no further. The data of these messages
        // are an `in_pktinfo`, an int and a `timespec`, which are read unaligned.
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

/// Makes the kernel report the destination address of each received datagram.
pub(crate) fn show_destination(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)
}

/// Lets the kernel deliver datagrams that arrive together as one message (GRO).
pub(crate) fn merge_received(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Makes the kernel never fragment datagrams: switches drop fragments.
pub(crate) fn never_fragment(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
}

/// Makes the kernel report the receive time of each packet.
pub(crate) fn stamp_received(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// A packet received by a packet socket.
pub(crate) struct Stamped {
    /// The interface that received or sent the packet.
    pub(crate) ifindex: u32,
    /// Whether this host sent the packet.
    pub(crate) is_outgoing: bool,
    /// Receive time, wall clock.
    pub(crate) at_unix_ns: u64,
    /// Number of bytes that were copied.
    pub(crate) length: usize,
}

/// Receives a packet on a socket with [`stamp_received`]. A packet longer than `bytes` is
/// truncated.
pub(crate) fn receive_stamped(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<Stamped> {
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = Control([0; CONTROL_BYTES]);
    // SAFETY: both are plain data, for which all zeros are valid.
    let (mut address, mut header) =
        unsafe { (std::mem::zeroed::<libc::sockaddr_ll>(), std::mem::zeroed::<libc::msghdr>()) };
    header.msg_name = (&raw mut address).cast();
    header.msg_namelen = size_of::<libc::sockaddr_ll>() as u32;
    (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
    (header.msg_control, header.msg_controllen) = (control.0.as_mut_ptr().cast(), CONTROL_BYTES);
    // SAFETY: all buffers in the header outlive the call and have the lengths that it states.
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

/// Whether an interface is up and has a carrier.
pub(crate) fn has_carrier(socket: BorrowedFd<'_>, device: &str) -> io::Result<bool> {
    // SAFETY: all zeros are a valid request, without a name and flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The name must end with a zero byte.
    if device.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    request.ifr_name.iter_mut().zip(device.bytes()).for_each(|(place, byte)| *place = byte as libc::c_char);
    // SAFETY: the kernel reads the name and writes the flags, all within the request, which outlives
    // the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: this request fills in the flags.
    let flags = i32::from(unsafe { request.ifr_ifru.ifru_flags });
    Ok(flags & libc::IFF_UP != 0 && flags & libc::IFF_RUNNING != 0)
}
