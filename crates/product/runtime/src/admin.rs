//! Client side of admin commands: sends one request per connection to the metadata instances and
//! waits for the answers.

use crate::control_plane::{AdminRequest, BackupFrame, Greeting, NotLeading, Role, VERSION, decode, encode};
use crate::in_words;
use nicekv_metadata::Status;
use nicekv_proto::recovery::FRAME_BYTES_MAX;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Longest answer, in bytes.
const ANSWER_BYTES_MAX: usize = crate::control_plane::CONTROL_LIMITS.frame_bytes_max;
/// Most instances that are asked, including those whose addresses other instances report.
const INSTANCES_MAX: usize = 32;
/// Pause between attempts to find a leader, or a route to it.
const AGAIN_PAUSE: Duration = Duration::from_millis(100);
/// A peer that accepts a connection and sends nothing for this time is tested for RESP.
const SILENCE_MAX: Duration = Duration::from_millis(500);
/// Timeout of that test.
const RESP_TIMEOUT: Duration = Duration::from_millis(500);

/// No instance leads. Contains the answer of each instance.
#[derive(Debug)]
pub struct NoLeader {
    /// Address and answer of each instance.
    pub instances: Vec<(SocketAddrV4, String)>,
    /// Cluster state known to the last leader.
    pub last_known: Option<Box<Status>>,
    /// Whether a retry may help: an instance is on standby and its store responds, or the network
    /// may still find another route.
    may_lead_soon: bool,
    /// Whether any instance has answered, or the network has reported an error.
    is_heard: bool,
}

impl fmt::Display for NoLeader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told: Vec<_> =
            self.instances.iter().map(|(address, told)| format!("{address}: {told}")).collect();
        write!(formatter, "no answer from a leading metadata service ({})", told.join("; "))
    }
}

impl std::error::Error for NoLeader {}

/// Sends a request to all instances, and to those that they name, and returns the leader's answer
/// as JSON. Retries during an election, and while there is no route to the leader: a host's kernel
/// gives up on a neighbour sooner than switches reroute around a failed trunk. Gives up after
/// `timeout`.
pub fn ask(
    instances: &[SocketAddrV4],
    request: &AdminRequest,
    timeout: Duration,
) -> Result<Vec<u8>, NoLeader> {
    let (deadline, mut before) = (Instant::now() + timeout, None);
    loop {
        match ask_all(instances, request, deadline.saturating_duration_since(Instant::now())) {
            Ok(answer) => return Ok(answer),
            Err(none) => {
                // If this attempt only ran out of time, an earlier one has better reasons.
                let none = if none.is_heard { none } else { before.take().unwrap_or(none) };
                if !none.may_lead_soon || Instant::now() + AGAIN_PAUSE >= deadline {
                    return Err(none);
                }
                before = Some(none);
                std::thread::sleep(AGAIN_PAUSE);
            }
        }
    }
}

fn ask_all(
    instances: &[SocketAddrV4],
    request: &AdminRequest,
    timeout: Duration,
) -> Result<Vec<u8>, NoLeader> {
    let deadline = Instant::now() + timeout;
    let (answers, heard) = mpsc::channel();
    let mut none =
        NoLeader { instances: Vec::new(), last_known: None, may_lead_soon: false, is_heard: false };
    let mut open = 0;
    let begin = |none: &mut NoLeader, address: SocketAddrV4, open: &mut usize| {
        let is_known = none.instances.iter().any(|(known, _)| *known == address);
        if is_known || none.instances.len() == INSTANCES_MAX {
            return;
        }
        let (answers, request) = (answers.clone(), request.clone());
        // One thread per instance: an instance that does not answer must not delay the others.
        let ask = move || answers.send((address, ask_one(address, &request, timeout)));
        let (begun, why) = match std::thread::Builder::new().spawn(ask) {
            Ok(_) => (1, format!("no answer in {}", in_words(timeout))),
            Err(error) => (0, format!("not asked: there is no thread for it ({error})")),
        };
        *open += begun;
        none.instances.push((address, why));
    };
    for instance in instances {
        begin(&mut none, *instance, &mut open);
    }
    while open > 0 {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok((address, answer)) = heard.recv_timeout(left) else { break };
        open -= 1;
        none.is_heard |= !answer.as_ref().is_err_and(is_silence);
        let told = match answer.map(|json| (NotLeading::decode(&json), json)) {
            Ok((None, json)) => return Ok(json),
            Ok((Some(NotLeading { not_leading, last_known }), _)) => {
                none.last_known = none.last_known.take().or(last_known);
                for other in not_leading.instances {
                    begin(&mut none, other, &mut open);
                }
                none.may_lead_soon |= not_leading.outage.is_none();
                match not_leading.outage {
                    Some((since_ms, why)) => {
                        let (store, seconds) = (not_leading.store, since_ms.div_ceil(1000));
                        format!("does not lead, no answer from {store} for {seconds} s: {why}")
                    }
                    None => "does not lead".into(),
                }
            }
            Err(error) => {
                none.may_lead_soon |= has_no_way(&error);
                reason(&error, timeout)
            }
        };
        for instance in none.instances.iter_mut().filter(|(known, _)| *known == address) {
            instance.1.clone_from(&told);
        }
    }
    Err(none)
}

/// Whether the error means that a read or write has timed out.
fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

/// Whether the error means that there is no route to the host.
fn has_no_way(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable)
}

/// Reads the content of a partition from the node at this address and passes each frame to `take`.
/// The last frame is [`BackupFrame::End`] or [`BackupFrame::Refused`]. Errors, including those of
/// `take`, are single lines.
pub fn back_up(
    node: SocketAddrV4,
    partition: u32,
    timeout: Duration,
    mut take: impl FnMut(BackupFrame) -> Result<(), String>,
) -> Result<(), String> {
    let dialled = dial(node, &AdminRequest::Backup(partition), timeout);
    let mut stream = dialled.map_err(|error| error.to_string())?;
    loop {
        let frame = read_frame(&mut stream, FRAME_BYTES_MAX).map_err(|error| error.to_string())?;
        let frame = decode(&frame).map_err(|error| error.to_string())?;
        let is_last = matches!(frame, BackupFrame::End | BackupFrame::Refused(_));
        take(frame)?;
        if is_last {
            return Ok(());
        }
    }
}

/// Describes an error of [`ask_one`] for an operator.
pub(crate) fn reason(error: &io::Error, timeout: Duration) -> String {
    match is_silence(error) {
        true => format!("no answer in {}", in_words(timeout)),
        false => error.to_string(),
    }
}

/// Sends a request to one instance, whether or not it leads.
pub(crate) fn ask_one(
    metadata: SocketAddrV4,
    request: &AdminRequest,
    timeout: Duration,
) -> io::Result<Vec<u8>> {
    let mut stream = dial(metadata, request, timeout)?;
    stream.set_read_timeout(Some(SILENCE_MAX.min(timeout)))?;
    if stream.peek(&mut [0]).is_err_and(|error| is_silence(&error)) && speaks_resp(metadata) {
        let line = "this is a port for Redis clients; the endpoint is the metadata service's port, \
                    which `nicekv up` prints as endpoint=";
        return Err(io::Error::new(io::ErrorKind::InvalidData, line));
    }
    stream.set_read_timeout(Some(timeout))?;
    let answer = read_frame(&mut stream, ANSWER_BYTES_MAX)?;
    match Greeting::other_version(&answer) {
        None => Ok(answer),
        Some(version) => {
            let line = format!("it speaks control protocol {version}, this program {VERSION}");
            Err(io::Error::new(io::ErrorKind::InvalidData, line))
        }
    }
}

/// Whether a Redis server or a gateway listens at the address: it answers in RESP, even if with an
/// error.
fn speaks_resp(address: SocketAddrV4) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&address.into(), RESP_TIMEOUT)?;
        stream.set_read_timeout(Some(RESP_TIMEOUT))?;
        stream.write_all(b"PING\r\n")?;
        let mut first = [0];
        stream.read_exact(&mut first).map(|()| first[0])
    };
    ask().is_ok_and(|first: u8| matches!(first, b'+' | b'-'))
}

/// Connects and sends the request.
fn dial(metadata: SocketAddrV4, request: &AdminRequest, timeout: Duration) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&metadata.into(), timeout)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let mut frames = Vec::new();
    for message in [encode(&Greeting::new(Role::Admin)), encode(request)] {
        frames.extend_from_slice(&(message.len() as u32).to_be_bytes());
        frames.extend_from_slice(&message);
    }
    stream.write_all(&frames)?;
    Ok(stream)
}

fn read_frame(stream: &mut TcpStream, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            let line = format!(
                "it has hung up: it is no metadata service, such as a node, or of another release than this program, which speaks control protocol {VERSION}"
            );
            io::Error::new(error.kind(), line)
        }
        _ => error,
    })?;
    let length = u32::from_be_bytes(length) as usize;
    if length > bytes_max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "what answers there is no metadata service"));
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}
