//! `[[gateways]]`: gateways for Redis clients.

use crate::address;
use crate::bounded::{ThreadCount, ValueLimit};
use serde::{Deserialize, Deserializer, Serialize};
use std::net::{SocketAddr, SocketAddrV4};
use std::num::NonZero;
use std::path::PathBuf;

/// An entry of `[[gateways]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewaySection {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional_v4")]
    pub listen: Option<SocketAddrV4>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional_v4")]
    pub tls_resp: Option<SocketAddrV4>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_certificate: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_ca: Option<PathBuf>,
    #[serde(default = "GatewaySection::protected_mode")]
    pub protected_mode: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<ThreadCount>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib_max: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub large_mib_max: Option<NonZero<usize>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_mib_max: Option<ValueLimit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acl_file: Option<PathBuf>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "address::deserialize_optional"
    )]
    pub metrics: Option<SocketAddr>,
}

fn optional_v4<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddrV4>, D::Error> {
    address::deserialize(deserializer).map(Some)
}

impl GatewaySection {
    pub fn protected_mode() -> bool {
        true
    }

    /// The addresses that the gateway listens on, with their keys.
    pub fn addresses(&self) -> impl Iterator<Item = (&'static str, SocketAddrV4)> {
        let all = [("listen", self.listen), ("tls_resp", self.tls_resp)];
        all.into_iter().filter_map(|(field, address)| Some((field, address?)))
    }

    /// Contradictions within the entry: the key to change, and why.
    pub(super) fn problems(&self) -> Vec<(&'static str, &'static str)> {
        let mut found = Vec::new();
        if self.password_file.is_some() && self.acl_file.is_some() {
            found.push((
                "acl_file",
                "replaces password_file; remove one (as an ACL line: `user default on >PASSWORD ~* &* +@all`)",
            ));
        }
        if self.listen.is_none() && self.tls_resp.is_none() {
            found.push(("listen", "missing: the address for Redis clients, ADDR:PORT; or set tls_resp"));
        }
        if self.tls_resp.is_some() {
            if self.tls_certificate.is_none() || self.tls_key.is_none() {
                found.push(("tls_resp", "also needs tls_certificate and tls_key (PEM files)"));
            }
        } else if self.tls_certificate.is_some() || self.tls_key.is_some() || self.tls_ca.is_some() {
            found.push((
                "tls_certificate",
                "tls_certificate, tls_key and tls_ca need tls_resp; add it, or remove them",
            ));
        }
        found
    }
}
