//! Properties of an interface, read with one request to the kernel (rtnetlink(7)).

use std::io;

use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketType, recv, send, socket};

/// NETLINK_ROUTE is protocol 0, which the library represents as its default, `None`.
const ROUTE: Option<Protocol> = None;
const GET_LINK: u16 = 18;
const NEW_LINK: u16 = 16;
const REQUEST: u16 = 1;
/// Lengths of `struct nlmsghdr` and of `struct ifinfomsg`, which follows it in replies about links.
const HEADER_BYTES: usize = 16;
const LINK_BYTES: usize = 16;
const ATTRIBUTE_NAME: u16 = 3;
const ATTRIBUTE_LINK_INFO: u16 = 18;
const ATTRIBUTE_PEER_NAMESPACE: u16 = 37;
const ATTRIBUTE_KIND: u16 = 1;
/// The upper bits of an attribute's type are flags.
const ATTRIBUTE_TYPE_BITS: u16 = 0x3fff;
/// Larger than any reply of the kernel about one interface.
const ANSWER_BYTES_MAX: usize = 32 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    /// Whether the interface is one end of a veth pair.
    pub(crate) is_veth: bool,
    /// Whether the other end is in another network namespace, so that `bpf_redirect_peer` works.
    pub(crate) has_peer: bool,
}

impl Interface {
    /// Reads the properties of an interface in the caller's network namespace.
    pub(crate) fn of(ifindex: u32) -> io::Result<Self> {
        let kernel = socket(AddressFamily::NETLINK, SocketType::RAW, ROUTE)?;
        send(&kernel, &request(ifindex), SendFlags::empty())?;
        let mut answer = vec![0; ANSWER_BYTES_MAX];
        let (bytes, _) = recv(&kernel, &mut answer, RecvFlags::empty())?;
        answer.truncate(bytes);
        parse(&answer)
    }
}

fn request(ifindex: u32) -> Vec<u8> {
    let (bytes, sequence, sender) = ((HEADER_BYTES + LINK_BYTES) as u32, 1u32, 0u32);
    let header = [&bytes.to_ne_bytes()[..], &GET_LINK.to_ne_bytes(), &REQUEST.to_ne_bytes()].concat();
    let link = [&[0; 4][..], &ifindex.to_ne_bytes(), &[0; 8]].concat();
    [&header[..], &sequence.to_ne_bytes(), &sender.to_ne_bytes(), &link].concat()
}

fn parse(answer: &[u8]) -> io::Result<Interface> {
    let cut_short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let (header, body) = answer.split_at_checked(HEADER_BYTES).ok_or_else(cut_short)?;
    if u16::from_ne_bytes([header[4], header[5]]) != NEW_LINK {
        // Any other reply is an error message, which begins with the negative error number.
        let number = body.first_chunk().map(|number| i32::from_ne_bytes(*number)).ok_or_else(cut_short)?;
        return Err(io::Error::from_raw_os_error(number.saturating_neg()));
    }
    let attributes = body.get(LINK_BYTES..).ok_or_else(cut_short)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
    let kind = attribute(attributes, ATTRIBUTE_LINK_INFO).and_then(|info| attribute(info, ATTRIBUTE_KIND));
    let is_veth = kind.map(text).as_deref() == Some("veth");
    Ok(Interface {
        name: attribute(attributes, ATTRIBUTE_NAME).map(text).ok_or_else(cut_short)?,
        is_veth,
        has_peer: is_veth && attribute(attributes, ATTRIBUTE_PEER_NAMESPACE).is_some(),
    })
}

/// The value of the first attribute of type `wanted`. An attribute consists of its length and type,
/// two bytes each, the value, and padding to four bytes.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let header: [u8; 4] = *attributes.first_chunk()?;
        let bytes = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = attributes.get(4..bytes)?;
        if u16::from_ne_bytes([header[2], header[3]]) & ATTRIBUTE_TYPE_BITS == wanted {
            return Some(value);
        }
        attributes = attributes.get(bytes.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_not_a_veth_and_a_missing_interface_is_an_error() {
        let lo = Interface { name: "lo".into(), is_veth: false, has_peer: false };
        assert_eq!(Interface::of(1).unwrap(), lo);
        assert_eq!(Interface::of(0x7fff_ffff).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn truncated_netlink_reply_is_an_error() {
        let kernel = socket(AddressFamily::NETLINK, SocketType::RAW, ROUTE).unwrap();
        send(&kernel, &request(1), SendFlags::empty()).unwrap();
        let mut answer = vec![0; ANSWER_BYTES_MAX];
        let (bytes, _) = recv(&kernel, &mut answer, RecvFlags::empty()).unwrap();
        assert!(parse(&answer[..bytes]).is_ok());
        for length in 0..HEADER_BYTES + LINK_BYTES + 4 {
            assert!(parse(&answer[..length]).is_err(), "{length} bytes");
        }
    }
}
