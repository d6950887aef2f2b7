//! Where a lab lives: its name, namespaces and files. Labs of different names live side by side.
//!
//! | | default | `NICEKV_LAB=NAME` |
//! | --- | --- | --- |
//! | namespace of `node-0` | `nicekv-node-0` | `nicekv-NAME-node-0` |
//! | state (`state`) | `/run/nicekv/lab.json` | `/run/nicekv/lab-NAME.json` |
//! | configuration, logs, data | `/run/nicekv/lab/` | `/run/nicekv/lab-NAME/` |
//! | lock | `/run/nicekv/lab.lock` | `/run/nicekv/lab-NAME.lock` |

use std::path::{Path, PathBuf};

use crate::error::{LabError, Result};
use crate::namespace::Namespace;
use crate::topology::Host;

/// The environment variable that names a lab, so that tests stay out of an operator's way.
pub const LAB_VARIABLE: &str = "NICEKV_LAB";
/// Below it lives everything that a running cluster leaves for commands to find.
const RUN_DIRECTORY: &str = "/run/nicekv";
const NAME_BYTES_MAX: usize = 32;

/// The place of one lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    name: Option<String>,
}

impl Scope {
    /// The lab that the environment names.
    pub(crate) fn from_environment() -> Result<Self> {
        match std::env::var_os(LAB_VARIABLE) {
            None => Ok(Self { name: None }),
            Some(name) => Self::named(&name.to_string_lossy()),
        }
    }

    fn named(name: &str) -> Result<Self> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(allowed) {
            return Err(LabError::LabName { name: name.into(), limit: NAME_BYTES_MAX });
        }
        Ok(Self { name: Some(name.into()) })
    }

    /// Another lab, for a test that belongs to this one.
    pub(crate) fn beside(&self, suffix: &str) -> Result<Self> {
        match &self.name {
            None => Self::named(suffix),
            Some(name) => Self::named(&format!("{name}-{suffix}")),
        }
    }

    /// How an operator gives this lab a command.
    pub(crate) fn command(&self, verb: &str) -> String {
        match &self.name {
            None => format!("nicekv lab {verb}"),
            Some(name) => format!("{LAB_VARIABLE}={name} nicekv lab {verb}"),
        }
    }

    pub(crate) fn namespace_prefix(&self) -> String {
        match &self.name {
            None => "nicekv-".into(),
            Some(name) => format!("nicekv-{name}-"),
        }
    }

    pub(crate) fn namespace(&self, host: Host) -> Namespace {
        Namespace::new(format!("{}{}", self.namespace_prefix(), host.machine()))
    }

    /// The host whose namespace would have this name. No name belongs to two labs: the rest of a longer prefix
    /// is no host.
    fn host_of(&self, namespace: &str) -> Option<Host> {
        let host: Host = namespace.strip_prefix(&self.namespace_prefix())?.parse().ok()?;
        (host == host.machine()).then_some(host)
    }

    /// The namespaces of this lab that there are.
    pub(crate) fn namespaces(&self) -> Result<Vec<Namespace>> {
        let names = Namespace::all()?;
        Ok(names.into_iter().filter(|namespace| self.host_of(namespace.name()).is_some()).collect())
    }

    pub(crate) fn run_directory() -> &'static Path {
        Path::new(RUN_DIRECTORY)
    }

    fn path(&self, suffix: &str) -> PathBuf {
        let name = self.name.as_ref().map(|name| format!("-{name}")).unwrap_or_default();
        Self::run_directory().join(format!("lab{name}{suffix}"))
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.path("")
    }

    pub(crate) fn state_file(&self) -> PathBuf {
        self.path(".json")
    }

    pub(crate) fn lock_file(&self) -> PathBuf {
        self.path(".lock")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.directory().join("logs")
    }

    pub(crate) fn log_file(&self, host: Host) -> PathBuf {
        self.logs().join(format!("{host}.log"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labs_do_not_take_each_others_namespaces() {
        let scopes = [
            Scope { name: None },
            Scope::named("node").unwrap(),
            Scope::named("node-0").unwrap(),
            Scope::named("a-node").unwrap(),
            Scope::named("a").unwrap(),
        ];
        for (owner, scope) in scopes.iter().enumerate() {
            for host in [Host::Switch, Host::Metadata, Host::Node(0), Host::Client(12)] {
                let name = scope.namespace(host).name().to_owned();
                for (other, stranger) in scopes.iter().enumerate() {
                    assert_eq!(stranger.host_of(&name), (other == owner).then_some(host), "{name}");
                }
            }
        }
    }

    #[test]
    fn a_name_that_could_leave_the_directory_is_refused() {
        for name in ["", "..", "a/b", "A", &"x".repeat(33)] {
            assert!(matches!(Scope::named(name), Err(LabError::LabName { .. })), "{name}");
        }
    }
}
