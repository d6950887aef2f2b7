//! `[[gateways]]` of the file.

use crate::address;
use crate::thread_count::ThreadCount;
use crate::value_limit::ValueLimit;
use serde::{Deserialize, Deserializer, Serialize};
use std::net::{SocketAddr, SocketAddrV4};
use std::num::NonZero;
use std::path::PathBuf;

/// `[[gateways]]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewaySection {
    pub name: String,
    /// Where clients come without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional_v4")]
    pub listen: Option<SocketAddrV4>,
    /// Where they come with it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional_v4")]
    pub tls_resp: Option<SocketAddrV4>,
    /// That clients are shown there; PEM, like the following.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_certificate: Option<PathBuf>,
    /// Its private key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    /// Of certificates that clients must show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_ca: Option<PathBuf>,
    /// Whether other hosts are refused while nobody needs a password.
    #[serde(default = "GatewaySection::protected_mode")]
    pub protected_mode: bool,
    /// Threads; `None`: half as many as there are processors, 1 to 8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<ThreadCount>,
    /// Most MiB of commands and replies, less what is large, that all its connections together may hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib_max: Option<usize>,
    /// Most MiB of large arguments and values that these may hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub large_mib_max: Option<NonZero<usize>>,
    /// MiB of the longest value that clients may set or get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_mib_max: Option<ValueLimit>,
    /// Has the default user's password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// Has users, as Redis' ACL files do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acl_file: Option<PathBuf>,
    /// Where its metrics are read.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "address::deserialize_optional"
    )]
    pub metrics: Option<SocketAddr>,
}

/// An address, or nothing.
fn optional_v4<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddrV4>, D::Error> {
    address::deserialize(deserializer).map(Some)
}

impl GatewaySection {
    /// The default of the field.
    pub fn protected_mode() -> bool {
        true
    }

    /// Where it listens.
    pub fn addresses(&self) -> impl Iterator<Item = (&'static str, SocketAddrV4)> {
        let all = [("listen", self.listen), ("tls_resp", self.tls_resp)];
        all.into_iter().filter_map(|(field, address)| Some((field, address?)))
    }

    /// What makes no sense together: the field that is to blame, and why.
    pub(super) fn problems(&self) -> Vec<(&'static str, &'static str)> {
        let mut found = Vec::new();
        if self.password_file.is_some() && self.acl_file.is_some() {
            found.push((
                "acl_file",
                "is instead of password_file: `user default on >PASSWORD ~* &* +@all` is a line of it",
            ));
        }
        if self.listen.is_none() && self.tls_resp.is_none() {
            found.push(("listen", "missing; say where Redis clients connect, ADDR:PORT; or tls_resp"));
        }
        if self.tls_resp.is_some() {
            if self.tls_certificate.is_none() || self.tls_key.is_none() {
                found.push(("tls_resp", "takes tls_certificate and tls_key, PEM files"));
            }
        } else if self.tls_certificate.is_some() || self.tls_key.is_some() || self.tls_ca.is_some() {
            found.push((
                "tls_certificate",
                "and tls_key and tls_ca are of tls_resp; add it, or leave them out",
            ));
        }
        found
    }
}
