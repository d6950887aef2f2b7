//! Asking the metadata service, for commands: one connection, one question, blocking.

use crate::control_plane::{AdminRequest, Greeting, Role, encode};
use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

/// Longest answer.
const ANSWER_BYTES_MAX: usize = crate::control_plane::CONTROL_LIMITS.frame_bytes_max;

/// Asks `request` at the metadata service's TCP address and returns the answer, JSON. Gives up after `timeout`.
pub fn ask(metadata: SocketAddrV4, request: AdminRequest, timeout: Duration) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&metadata.into(), timeout)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let mut frames = Vec::new();
    for message in [encode(&Greeting::new(Role::Admin)), encode(&request)] {
        frames.extend_from_slice(&(message.len() as u32).to_be_bytes());
        frames.extend_from_slice(&message);
    }
    stream.write_all(&frames)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > ANSWER_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "what answers there is no metadata service"));
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}
