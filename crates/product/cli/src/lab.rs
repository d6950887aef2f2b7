//! Names and paths of labs. A lab is a cluster of network namespaces, which `nicekv lab` creates
//! and commands find by an environment variable.
//!
//! | | default | `NICEKV_LAB=NAME` |
//! | --- | --- | --- |
//! | namespace of `node-0` | `nicekv-node-0` | `nicekv-NAME-node-0` |
//! | state | `/run/nicekv/lab.json` | `/run/nicekv/lab-NAME.json` |
//! | configuration, logs, data | `/run/nicekv/lab/` | `/run/nicekv/lab-NAME/` |
//! | lock | `/run/nicekv/lab.lock` | `/run/nicekv/lab-NAME.lock` |

use std::fmt;
use std::path::{Path, PathBuf};

/// The environment variable that names one of several labs.
pub const LAB_VARIABLE: &str = "NICEKV_LAB";
/// Directory where running clusters write the files by which commands find them.
pub const RUN_DIRECTORY: &str = "/run/nicekv";
/// Directory where `ip netns` keeps named network namespaces.
pub const NAMESPACE_DIRECTORY: &str = "/run/netns";
const NAME_BYTES_MAX: usize = 32;

/// The name of a lab of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabName(Option<String>);

/// The name is invalid: it could lead outside the directory, or make the name of a namespace
/// ambiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidLabName(String);

impl std::error::Error for InvalidLabName {}

impl fmt::Display for InvalidLabName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.0;
        write!(
            formatter,
            "{LAB_VARIABLE}={name:?} is not a valid lab name: use 1 to {NAME_BYTES_MAX} of a-z, 0-9 and -"
        )
    }
}

impl LabName {
    /// The lab that the environment names, or the default one.
    ///
    /// # Errors
    /// The name is invalid.
    pub fn from_environment() -> Result<Self, InvalidLabName> {
        match std::env::var_os(LAB_VARIABLE) {
            None => Ok(Self::default()),
            Some(name) => Self::new(&name.to_string_lossy()),
        }
    }

    /// The lab of this name.
    ///
    /// # Errors
    /// The name is invalid.
    pub fn new(name: &str) -> Result<Self, InvalidLabName> {
        let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        match (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_allowed) {
            true => Ok(Self(Some(name.into()))),
            false => Err(InvalidLabName(name.into())),
        }
    }

    /// Another lab, whose name is derived from this one's.
    ///
    /// # Errors
    /// The name becomes too long.
    pub fn derived(&self, suffix: &str) -> Result<Self, InvalidLabName> {
        match &self.0 {
            None => Self::new(suffix),
            Some(name) => Self::new(&format!("{name}-{suffix}")),
        }
    }

    /// The command line that runs `nicekv lab VERB` on this lab.
    pub fn command(&self, verb: &str) -> String {
        match &self.0 {
            None => format!("nicekv lab {verb}"),
            Some(name) => format!("{LAB_VARIABLE}={name} nicekv lab {verb}"),
        }
    }

    /// Prefix of the names of the lab's network namespaces; a host's name follows it.
    pub fn namespace_prefix(&self) -> String {
        match &self.0 {
            None => "nicekv-".into(),
            Some(name) => format!("nicekv-{name}-"),
        }
    }

    /// Directory of the lab's configuration, logs and data.
    pub fn directory(&self) -> PathBuf {
        self.path("")
    }

    /// The file by which commands find the lab; it exists as long as any part of the lab does.
    pub fn state_file(&self) -> PathBuf {
        self.path(".json")
    }

    /// The lock file, held by the command that changes the lab.
    pub fn lock_file(&self) -> PathBuf {
        self.path(".lock")
    }

    fn path(&self, suffix: &str) -> PathBuf {
        let name = self.0.as_ref().map(|name| format!("-{name}")).unwrap_or_default();
        Path::new(RUN_DIRECTORY).join(format!("lab{name}{suffix}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        for name in ["", "..", "a/b", "A", &"x".repeat(33)] {
            assert_eq!(LabName::new(name), Err(InvalidLabName(name.into())));
        }
        let line = LabName::new("A").unwrap_err().to_string();
        assert_eq!(line, "NICEKV_LAB=\"A\" is not a valid lab name: use 1 to 32 of a-z, 0-9 and -");
    }

    #[test]
    fn default_and_named_labs_have_different_paths() {
        let (default, named) = (LabName::default(), LabName::new("a").unwrap());
        assert_eq!(default.state_file(), Path::new("/run/nicekv/lab.json"));
        assert_eq!(named.state_file(), Path::new("/run/nicekv/lab-a.json"));
        assert_eq!(named.derived("chaos").unwrap().directory(), Path::new("/run/nicekv/lab-a-chaos"));
        assert_eq!(
            (default.namespace_prefix(), named.namespace_prefix()),
            ("nicekv-".into(), "nicekv-a-".into())
        );
        assert_eq!(named.command("down"), "NICEKV_LAB=a nicekv lab down");
    }
}
