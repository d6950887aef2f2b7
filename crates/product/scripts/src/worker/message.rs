//! Messages between a node and its worker: a script with its keys, and its result. Each message is
//! preceded by its length.

use nicekv_replica::{DamagedStates, ScriptCall, ScriptEnd, ScriptStates};
use std::io::{self, Read};

/// Maximum bytes of a message: key states and names, a source, and arguments.
const BYTES_MAX: usize = 16 << 20;
/// Bytes of the length prefix.
pub(super) const HEAD_BYTES: usize = 4;

/// A script to run.
pub(super) struct Job<'a> {
    /// Maximum CPU time, in milliseconds.
    pub(super) cpu_ms: u32,
    pub(super) unix_ms: u64,
    pub(super) is_read_only: bool,
    pub(super) source: &'a [u8],
    pub(super) arguments: &'a [u8],
    pub(super) keys: Vec<&'a [u8]>,
    /// The keys, as exported by the node.
    pub(super) states: &'a [u8],
}

/// The result of a script.
pub(super) struct Outcome<'a> {
    pub(super) end: ScriptEnd,
    /// The keys that the script has written, for [`ScriptStates::import`].
    pub(super) written: &'a [u8],
}

/// Encodes a script.
pub(super) fn job(cpu_ms: u32, call: &ScriptCall<'_>, keys: &dyn ScriptStates) -> Vec<u8> {
    message(|out| {
        out.extend_from_slice(&cpu_ms.to_le_bytes());
        out.extend_from_slice(&call.unix_ms.to_le_bytes());
        out.push(call.is_read_only.into());
        append(call.source, out);
        append(call.arguments, out);
        out.extend_from_slice(&(call.keys.len() as u32).to_le_bytes());
        call.keys.iter().for_each(|key| append(key, out));
        keys.export(out);
    })
}

/// Encodes a result; `written` appends the keys that the script has written.
pub(super) fn outcome(end: &ScriptEnd, written: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    message(|out| {
        out.push(end.has_failed.into());
        out.push(end.may_differ.into());
        append(&end.reply, out);
        written(out);
    })
}

fn message(fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![0; HEAD_BYTES];
    fill(&mut out);
    let length = (out.len() - HEAD_BYTES) as u32;
    out[..HEAD_BYTES].copy_from_slice(&length.to_le_bytes());
    out
}

fn append(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

impl<'a> Job<'a> {
    pub(super) fn decode(mut bytes: &'a [u8]) -> Result<Self, DamagedStates> {
        let rest = &mut bytes;
        let (cpu_ms, unix_ms) = (u32::from_le_bytes(array(rest)?), u64::from_le_bytes(array(rest)?));
        let is_read_only = array::<1>(rest)? != [0];
        let (source, arguments) = (counted(rest)?, counted(rest)?);
        let count = u32::from_le_bytes(array(rest)?);
        let keys = (0..count).map(|_| counted(rest)).collect::<Result<_, _>>()?;
        Ok(Self { cpu_ms, unix_ms, is_read_only, source, arguments, keys, states: bytes })
    }
}

impl<'a> Outcome<'a> {
    pub(super) fn decode(mut bytes: &'a [u8]) -> Result<Self, DamagedStates> {
        let rest = &mut bytes;
        let [has_failed, may_differ] = array(rest)?.map(|byte: u8| byte != 0);
        let reply = counted(rest)?.to_vec();
        Ok(Self { end: ScriptEnd { reply, has_failed, may_differ }, written: bytes })
    }
}

fn array<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], DamagedStates> {
    let (array, rest) = bytes.split_first_chunk().ok_or(DamagedStates)?;
    *bytes = rest;
    Ok(*array)
}

fn counted<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], DamagedStates> {
    let count = u32::from_le_bytes(array(bytes)?) as usize;
    let (counted, rest) = bytes.split_at_checked(count).ok_or(DamagedStates)?;
    *bytes = rest;
    Ok(counted)
}

/// Length of a message with its prefix; `None` if too few bytes have arrived to know it.
pub(super) fn length(bytes: &[u8]) -> io::Result<Option<usize>> {
    let Some(head) = bytes.first_chunk() else { return Ok(None) };
    let length = u32::from_le_bytes(*head) as usize;
    match length {
        ..=BYTES_MAX => Ok(Some(HEAD_BYTES + length)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Reads one message, and returns it without its prefix; `None` at the end of the stream.
pub(super) fn read(mut from: impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; HEAD_BYTES];
    match from.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = length(&head)?.ok_or(io::ErrorKind::InvalidData)?;
    let mut bytes = vec![0; length - HEAD_BYTES];
    from.read_exact(&mut bytes)?;
    Ok(Some(bytes))
}
