//! Where the users come from: a file with one password, an ACL file, or none.

use nicekv_redis::acl::Users;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Maximum bytes of a file of users.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Maximum bytes of the password in a password file.
const PASSWORD_BYTES_MAX: usize = 512;

/// Where the users come from. Files are read when the gateway starts, and by ACL LOAD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UserSource {
    /// No file: the default user needs no password.
    #[default]
    Open,
    /// A file with the password of the default user, on one line.
    PasswordFile(PathBuf),
    /// A file with users, in the format of Redis' ACL files.
    AclFile(PathBuf),
}

impl UserSource {
    /// Checks that the file can be read and parsed. The error names the problem and its place.
    pub fn check(&self) -> Result<(), String> {
        self.read().map(|_| ())
    }

    /// Reads the users. The error names the problem and its place, and contains no secret.
    pub(crate) fn read(&self) -> Result<Users, String> {
        match self {
            Self::Open => Ok(Users::default()),
            Self::PasswordFile(path) => {
                let text = read_file(path)?;
                let password = text.strip_suffix(b"\n").unwrap_or(&text);
                let password = password.strip_suffix(b"\r").unwrap_or(password);
                match password {
                    b"" => Err(format!("{}: no password in it", path.display())),
                    _ if password.contains(&b'\n') => {
                        Err(format!("{}: more than one line; it has the password alone", path.display()))
                    }
                    _ if password.len() > PASSWORD_BYTES_MAX => {
                        Err(format!("{}: more than {PASSWORD_BYTES_MAX} bytes", path.display()))
                    }
                    _ => Ok(Users::with_password(password, &sha256)),
                }
            }
            Self::AclFile(path) => Users::parse(&read_file(path)?, &path.display().to_string(), &sha256),
        }
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        let file = File::open(path)?;
        // Opening a named pipe could block a thread that serves clients.
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(io::Error::other(format!("more than {FILE_BYTES_MAX} bytes")));
        }
        Ok(text)
    };
    read().map_err(|error| format!("{}: {error}", path.display()))
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}
