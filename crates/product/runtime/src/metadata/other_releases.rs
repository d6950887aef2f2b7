//! Peers of other releases. They are not just ignored, but shown in `nicekv status`, the log and a
//! metric.

use crate::control_plane;
use nicekv_metadata::OtherReleaseStatus;
use nicekv_proto::{Duration, HeaderLayout, Now};
use std::net::IpAddr;

/// Most remembered peers. A new one replaces the one whose last message is oldest.
const OTHER_RELEASES_MAX: usize = 16;
/// A peer is no longer shown after this time without a message.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Protocols that carry a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// Datagrams of nodes and clients.
    Wire,
    /// Streams of switches and commands.
    Control,
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Control => "control",
        }
    }

    /// This release's version of the protocol.
    fn version(self) -> u8 {
        match self {
            Self::Wire => HeaderLayout::VERSION,
            Self::Control => control_plane::VERSION,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct OtherRelease {
    address: IpAddr,
    protocol: Protocol,
    version: u8,
    count: u64,
    heard_ns: u64,
}

/// Peers of other releases; see the module documentation.
#[derive(Debug, Default)]
pub(super) struct OtherReleases {
    heard: Vec<OtherRelease>,
    count: u64,
}

impl OtherReleases {
    pub(super) fn hear(&mut self, now: Now, address: IpAddr, protocol: Protocol, version: u8) {
        self.count += 1;
        let known = self
            .heard
            .iter_mut()
            .find(|known| (known.address, known.protocol, known.version) == (address, protocol, version));
        if let Some(known) = known {
            (known.count, known.heard_ns) = (known.count + 1, now.boot_ns);
            return;
        }
        if self.heard.len() == OTHER_RELEASES_MAX {
            let oldest = self.heard.iter().enumerate().min_by_key(|(_, known)| known.heard_ns);
            let oldest = oldest.map(|(index, _)| index).expect("there are some");
            self.heard.swap_remove(oldest);
        }
        self.heard.push(OtherRelease { address, protocol, version, count: 1, heard_ns: now.boot_ns });
    }

    /// Number of messages received from such peers.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Peers that have sent a message recently.
    pub(super) fn heard(&mut self, now: Now) -> Vec<OtherReleaseStatus> {
        let ago_ns = |other_release: &OtherRelease| now.boot_ns.saturating_sub(other_release.heard_ns);
        self.heard.retain(|other_release| ago_ns(other_release) < REMEMBERED.as_nanos() as u64);
        let told = |other_release: &OtherRelease| OtherReleaseStatus {
            address: other_release.address,
            protocol: other_release.protocol.name().into(),
            version: other_release.version,
            known: other_release.protocol.version(),
            count: other_release.count,
            ago_ms: ago_ns(other_release) / 1_000_000,
        };
        self.heard.iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn recent_peers_of_other_releases_are_listed_up_to_a_bound() {
        let at = |seconds: u64| Now { boot_ns: seconds * 1_000_000_000, unix_ms: 0 };
        let address = |last| IpAddr::from(Ipv4Addr::new(10, 20, 1, last));
        let mut other_releases = OtherReleases::default();
        other_releases.hear(at(1), address(1), Protocol::Wire, 9);
        other_releases.hear(at(2), address(1), Protocol::Wire, 9);
        other_releases.hear(at(2), address(2), Protocol::Control, 3);
        let told = other_releases.heard(at(3));
        let first = (told[0].address, told[0].protocol.as_str(), told[0].version, told[0].known);
        assert_eq!(first, (address(1), "wire", 9, HeaderLayout::VERSION));
        assert_eq!((told[0].count, told[0].ago_ms, told[1].protocol.as_str()), (2, 1000, "control"));
        assert_eq!(other_releases.heard(at(62)), []);
        for last in 0..=OTHER_RELEASES_MAX as u8 {
            other_releases.hear(at(100 + u64::from(last)), address(last), Protocol::Wire, 9);
        }
        let told = other_releases.heard(at(120));
        assert!(told.len() == OTHER_RELEASES_MAX && told.iter().all(|told| told.address != address(0)));
        assert_eq!(other_releases.count(), 3 + 1 + OTHER_RELEASES_MAX as u64);
    }
}
