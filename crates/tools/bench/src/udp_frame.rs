//! Frames as hosts send them, for switch programs that run without a network.

use std::net::SocketAddrV4;

const ETHERNET_BYTES: usize = 14;
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
/// Bytes before the UDP payload.
pub(crate) const HEADERS_BYTES: usize = ETHERNET_BYTES + IP_BYTES + UDP_BYTES;

/// Replaces `out` by an Ethernet frame with an IPv4 UDP datagram. `macs` are source and
/// destination.
pub(crate) fn build(
    out: &mut Vec<u8>,
    macs: ([u8; 6], [u8; 6]),
    (from, to): (SocketAddrV4, SocketAddrV4),
    payload: &[u8],
) {
    let udp_bytes = (UDP_BYTES + payload.len()) as u16;
    out.clear();
    out.extend_from_slice(&macs.1);
    out.extend_from_slice(&macs.0);
    out.extend_from_slice(&[8, 0]);
    // Version and length of the header; time to live; UDP.
    out.extend_from_slice(&[0x45, 0]);
    out.extend_from_slice(&(IP_BYTES as u16 + udp_bytes).to_be_bytes());
    out.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
    out.extend_from_slice(&from.ip().octets());
    out.extend_from_slice(&to.ip().octets());
    for field in [from.port(), to.port(), udp_bytes, 0] {
        out.extend_from_slice(&field.to_be_bytes());
    }
    out.extend_from_slice(payload);
    let at = ETHERNET_BYTES;
    let ip = !sum(&out[at..at + IP_BYTES], 0);
    out[at + 10..at + 12].copy_from_slice(&ip.to_be_bytes());
    // The pseudo header: addresses, protocol and length.
    let udp = match !sum(&out[at + 12..], 17 + u64::from(udp_bytes)) {
        0 => u16::MAX,
        checksum => checksum,
    };
    let at = at + IP_BYTES + 6;
    out[at..at + 2].copy_from_slice(&udp.to_be_bytes());
}

/// One's complement sum of 16-bit words, added to `before`.
fn sum(bytes: &[u8], before: u64) -> u16 {
    let (words, rest) = bytes.as_chunks();
    let words: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    let mut sum = before + words + rest.first().map_or(0, |last| u64::from(*last) << 8);
    while sum > u64::from(u16::MAX) {
        sum = (sum >> 16) + (sum & u64::from(u16::MAX));
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_verify() {
        let ends = ("10.20.2.1:40000".parse().unwrap(), "10.10.3.4:7400".parse().unwrap());
        for payload in [&b"even"[..], b"odd"] {
            let mut frame = Vec::new();
            build(&mut frame, ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]), ends, payload);
            assert_eq!(frame.len(), HEADERS_BYTES + payload.len());
            let (ip, udp_bytes) = (&frame[ETHERNET_BYTES..], (UDP_BYTES + payload.len()) as u64);
            assert_eq!(sum(&ip[..IP_BYTES], 0), u16::MAX);
            assert_eq!(sum(&ip[12..], 17 + udp_bytes), u16::MAX);
        }
    }
}
