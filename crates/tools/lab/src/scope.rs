//! The names and places of a lab's namespaces and files, by the lab's name ([`nicekv_cli::lab`]).
//! Labs of different names run side by side.

use std::path::{Path, PathBuf};

use nicekv_cli::lab::{LabName, RUN_DIRECTORY};

use crate::error::Result;
use crate::namespace::Namespace;
use crate::topology::Host;

/// The names and places of one lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    name: LabName,
}

impl Scope {
    /// The lab that the environment variable names.
    pub(crate) fn from_environment() -> Result<Self> {
        Ok(Self { name: LabName::from_environment()? })
    }

    /// Another lab beside this one, for a test.
    pub(crate) fn beside(&self, suffix: &str) -> Result<Self> {
        Ok(Self { name: self.name.derived(suffix)? })
    }

    /// The command line that runs a lab command on this lab.
    pub(crate) fn command(&self, verb: &str) -> String {
        self.name.command(verb)
    }

    pub(crate) fn namespace_prefix(&self) -> String {
        self.name.namespace_prefix()
    }

    pub(crate) fn namespace(&self, host: Host) -> Namespace {
        Namespace::new(format!("{}{}", self.namespace_prefix(), host.machine()))
    }

    /// The host whose namespace has this name. A namespace never belongs to two labs: of a lab with
    /// a longer name, what follows this lab's prefix is not a host's name.
    fn host_of(&self, namespace: &str) -> Option<Host> {
        let host: Host = namespace.strip_prefix(&self.namespace_prefix())?.parse().ok()?;
        (host == host.machine()).then_some(host)
    }

    /// The existing namespaces of this lab.
    pub(crate) fn namespaces(&self) -> Result<Vec<Namespace>> {
        let names = Namespace::all()?;
        Ok(names.into_iter().filter(|namespace| self.host_of(namespace.name()).is_some()).collect())
    }

    pub(crate) fn run_directory() -> &'static Path {
        Path::new(RUN_DIRECTORY)
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.name.directory()
    }

    pub(crate) fn state_file(&self) -> PathBuf {
        self.name.state_file()
    }

    pub(crate) fn lock_file(&self) -> PathBuf {
        self.name.lock_file()
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
        let named = ["node", "node-0", "a-node", "a"].map(|name| LabName::new(name).unwrap());
        let names = std::iter::once(LabName::default()).chain(named);
        let scopes: Vec<Scope> = names.map(|name| Scope { name }).collect();
        for (owner, scope) in scopes.iter().enumerate() {
            for host in [Host::Switch, Host::Metadata, Host::Node(0), Host::Client(12)] {
                let name = scope.namespace(host).name().to_owned();
                for (other, foreign) in scopes.iter().enumerate() {
                    assert_eq!(foreign.host_of(&name), (other == owner).then_some(host), "{name}");
                }
            }
        }
    }
}
