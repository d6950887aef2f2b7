//! Switches: the agent's streams to the metadata service, and the user-space switch.
//!
//! The user-space switch is one UDP socket. It receives datagrams for every address of its device,
//! vrings included, for which no more specific socket exists. It runs the reference model's
//! pipeline on each datagram ([`Router::process`]: admit, match, stamp), and forwards the result
//! from its own address. The kernel does the work of ports and links: servers are identified by
//! their addresses. Senders in the same process run the pipeline themselves, as [edges](edge) of
//! the switch.

mod client_trace;
mod edge;
mod openflow;
mod trunk_links;

pub use client_trace::{ClientTracer, WatchedPort};
pub(crate) use edge::Edge;
pub use edge::Edges;
pub use openflow::{OpenFlowSwitch, run_openflow};
pub use trunk_links::TrunkLinks;

use crate::control_plane::{CONTROL_LIMITS, Greeting, Role, encode};
use crate::inquiry::{Inquirer, Inquiries};
use crate::{
    FramedStream, Left, Message, PollFd, Stop, TermFile, UdpEndpoint, Waker, dial, is_ready, now, readable,
    wait,
};
use edge::EdgeRouters;
use nicekv_proto::{ClientId, Duration, Now};
use nicekv_switch::control::{self, ControlReply, ControlRequest, SwitchAgent, TermStore};
use nicekv_switch::{
    Backend, Counters, DatagramVerdict, GROUP_MEMBERS_MAX, Hop, HostId, Ingress, Router, TableError,
    TableStatus, VringSet,
};
use std::io;
use std::net::SocketAddrV4;
use thiserror::Error;

/// Pause between attempts to connect to the metadata service.
const REDIAL_PAUSE: Duration = Duration::from_millis(20);
/// Most batches that are forwarded before the agent is served.
const FORWARD_ROUNDS_MAX: usize = 16;

/// Why a switch cannot run.
#[derive(Debug, Error)]
pub enum SwitchError {
    /// The vrings are invalid.
    #[error(transparent)]
    Vrings(#[from] TableError),
    /// Error of the operating system.
    #[error("the switch's sockets: {0}")]
    Io(#[from] io::Error),
}

/// Statistics of a switch.
#[derive(Clone, Debug)]
pub struct SwitchObservation {
    /// Newest metadata term that the switch has seen.
    pub term: u64,
    /// Generation of the installed tables; `None` before the first installation.
    pub generation: Option<u64>,
    /// Size of each table, and number of lookups that it matched.
    pub tables: Vec<TableStatus>,
    /// Counters of the whole switch.
    pub counters: Counters,
    /// Whether the agent is connected to a metadata instance.
    pub is_connected: bool,
    /// Metadata instances of another release that were met.
    pub other_version: OtherVersion,
}

/// Queries the statistics of a switch. The answer is `None` if its back end did not answer.
pub type SwitchInquirer = Inquirer<(), Option<SwitchObservation>>;

/// The streams on which a switch's agent serves the metadata service. The agent keeps dialling one
/// stream to each instance, so that a new leader finds it connected; only the leader sends
/// requests.
pub struct AgentLink {
    name: String,
    streams: Vec<InstanceLink>,
    inquiries: Inquiries<(), Option<SwitchObservation>>,
    client_tracer: ClientTracer,
    trunk_links: TrunkLinks,
    other_version: OtherVersion,
}

/// Disconnects because a metadata instance speaks another protocol version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherVersion {
    /// Number of such disconnects.
    pub count: u64,
    /// Address and protocol version of the last such instance.
    pub last: Option<(SocketAddrV4, u8)>,
}

struct InstanceLink {
    metadata: SocketAddrV4,
    stream: Option<FramedStream>,
    dial_at_ns: u64,
    /// Last report sent to the instance: the switch's ports, and those with a dead link.
    told: Option<(Option<Vec<u16>>, Vec<u16>)>,
}

impl AgentLink {
    /// Links the switch `name` to the metadata instances at these TCP addresses.
    pub fn new(name: impl Into<String>, instances: &[SocketAddrV4]) -> Self {
        let link =
            |&metadata: &SocketAddrV4| InstanceLink { metadata, stream: None, dial_at_ns: 0, told: None };
        let streams = instances.iter().map(link).collect();
        Self {
            name: name.into(),
            streams,
            inquiries: Inquiries::default(),
            client_tracer: ClientTracer::default(),
            trunk_links: TrunkLinks::default(),
            other_version: OtherVersion::default(),
        }
    }

    /// For a switch that processes packets outside this process: sets how a traced client's
    /// datagrams are observed.
    #[must_use]
    pub fn seeing_by(mut self, client_tracer: ClientTracer) -> Self {
        self.client_tracer = client_tracer;
        self
    }

    /// For a switch with trunks to other switches: dead trunk links are reported.
    #[must_use]
    pub fn watching(mut self, trunk_links: TrunkLinks) -> Self {
        self.trunk_links = trunk_links;
        self
    }

    /// Lets other threads query the switch.
    pub fn inquirer(&self) -> SwitchInquirer {
        self.inquiries.inquirer()
    }

    /// Begins to answer queries. The waker wakes the switch's thread for them, and at `stop`.
    fn begin(&mut self, stop: &Stop) -> io::Result<Waker> {
        let waker = Waker::new()?;
        stop.register(&waker);
        self.inquiries.begin(&waker);
        Ok(waker)
    }

    /// Descriptors to poll.
    pub fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.streams.iter().filter_map(|link| link.stream.as_ref()).map(FramedStream::interest)
    }

    /// Time of the next scheduled work.
    pub fn next_deadline(&self) -> Option<u64> {
        let missing = self.streams.iter().filter(|link| link.stream.is_none());
        missing.map(|link| link.dial_at_ns).chain(self.trunk_links.next_deadline()).min()
    }

    /// Processes input. A broken stream is dialled again later; the metadata service repeats its
    /// requests then.
    pub fn turn<B: Backend, M: TermStore>(&mut self, now: Now, agent: &mut SwitchAgent<B, M>) {
        self.trunk_links.look(now);
        for link in &mut self.streams {
            let served = match &mut link.stream {
                Some(stream) => match serve(stream, agent, &mut self.client_tracer) {
                    Err(ServeError::OtherVersion(version)) => {
                        let OtherVersion { count, last } = &mut self.other_version;
                        (*count, *last) = (*count + 1, Some((link.metadata, version)));
                        false
                    }
                    served => {
                        let present = agent.backend().ports();
                        served.is_ok() && link.tell(present, self.trunk_links.down()).is_ok()
                    }
                },
                None if now.boot_ns < link.dial_at_ns => true,
                None => {
                    let present = agent.backend().ports();
                    link.dial(&self.name).is_ok() && link.tell(present, self.trunk_links.down()).is_ok()
                }
            };
            if !served {
                link.stream = None;
                link.dial_at_ns = now.after(REDIAL_PAUSE);
            }
        }
    }

    /// Answers queries from other threads.
    fn answer<B: Backend, M: TermStore>(&self, agent: &mut SwitchAgent<B, M>) {
        self.inquiries.answer(|()| match agent.handle(ControlRequest::Status { term: agent.term() }) {
            ControlReply::Status { term, generation, tables, counters } => {
                let is_connected = self.streams.iter().any(|link| link.stream.is_some());
                let other_version = self.other_version;
                Some(SwitchObservation { term, generation, tables, counters, is_connected, other_version })
            }
            _ => None,
        });
    }
}

impl InstanceLink {
    fn dial(&mut self, name: &str) -> Result<(), crate::StreamError> {
        let mut stream = FramedStream::new(dial(self.metadata)?, CONTROL_LIMITS);
        stream.queue(&encode(&Greeting::new(Role::Switch { name: name.to_owned() })))?;
        (self.stream, self.told) = (Some(stream), None);
        Ok(())
    }

    /// Reports the ports and dead links if they differ from the last report.
    fn tell(&mut self, present: Option<Vec<u16>>, down: Option<&[u16]>) -> Result<(), crate::StreamError> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        if present.is_none() && down.is_none() {
            return Ok(());
        }
        let ports = (present, down.unwrap_or_default().to_vec());
        if self.told.as_ref() == Some(&ports) {
            return Ok(());
        }
        let (present, down) = ports.clone();
        let reply = ControlReply::Ports { present, down };
        stream.queue(&control::encode(&reply).expect("replies are short"))?;
        self.told = Some(ports);
        stream.flush()
    }
}

/// Reads the stream once and executes its requests. An error means that the stream must be closed.
fn serve<B: Backend, M: TermStore>(
    stream: &mut FramedStream,
    agent: &mut SwitchAgent<B, M>,
    client_tracer: &mut ClientTracer,
) -> Result<(), ServeError> {
    let mut replies = Vec::new();
    let mut malformed = None;
    stream.receive(|frame| match control::decode(frame) {
        Ok(request) => replies.push(handle(agent, client_tracer, request)),
        Err(_) => malformed = Some(Greeting::other_version(frame)),
    })?;
    match malformed {
        None => {}
        Some(None) => return Err(crate::StreamError::Closed.into()),
        Some(Some(version)) => return Err(ServeError::OtherVersion(version)),
    }
    for reply in &replies {
        stream.queue(&control::encode(reply).expect("replies are short"))?;
    }
    Ok(stream.flush()?)
}

/// Executes a request, and adds facts that only the agent's environment knows.
fn handle<B: Backend, M: TermStore>(
    agent: &mut SwitchAgent<B, M>,
    client_tracer: &mut ClientTracer,
    request: ControlRequest,
) -> ControlReply {
    let mut reply = agent.handle(request);
    if let ControlReply::Found { lookup, found, .. } = &mut reply {
        found.client_trace = client_tracer.look(now(), lookup.watch.map(ClientId));
    }
    reply
}

/// Why a stream is closed.
#[derive(Debug, Error)]
enum ServeError {
    #[error(transparent)]
    Stream(#[from] crate::StreamError),
    /// The instance belongs to another release, and closes the connection.
    #[error("the metadata service speaks control protocol {0}")]
    OtherVersion(u8),
}

/// Serves the metadata service until `stop`, for a switch whose packets are processed in the
/// kernel.
pub fn run_agent<B: Backend, M: TermStore>(
    mut link: AgentLink,
    agent: &mut SwitchAgent<B, M>,
    stop: &Stop,
) -> io::Result<()> {
    let waker = link.begin(stop)?;
    while !stop.is_stopped() {
        let mut descriptors: Vec<PollFd<'_>> =
            std::iter::once(readable(&waker)).chain(link.interests()).collect();
        wait(&mut descriptors, link.next_deadline())?;
        waker.clear();
        link.answer(agent);
        link.turn(now(), agent);
    }
    Ok(())
}

/// An agent of a back end without tables. `memory` persists its term.
pub fn agent<B: Backend>(backend: B, memory: Option<TermFile>) -> SwitchAgent<B, Option<TermFile>> {
    let term = memory.as_ref().map_or(0, TermFile::term);
    SwitchAgent::with_term_store(backend, term, memory)
}

/// A switch whose pipeline runs in this process.
pub struct UserSpaceSwitch {
    endpoint: UdpEndpoint,
    agent: SwitchAgent<EdgeRouters, Option<TermFile>>,
    link: AgentLink,
}

impl UserSpaceSwitch {
    /// A switch without tables on a bound socket ([`UdpEndpoint::bind_switch`]); the socket's port
    /// is the wire port. Without a term file, the switch forgets the terms that it has seen when
    /// its process ends.
    pub fn new<V: TryInto<VringSet>>(
        endpoint: UdpEndpoint,
        vrings: V,
        link: AgentLink,
        memory: Option<TermFile>,
    ) -> Result<Self, SwitchError>
    where
        TableError: From<V::Error>,
    {
        let mut router = Router::new(vrings)?;
        router.begin_incarnation(crate::random()?.max(1));
        let agent = agent(EdgeRouters::new(router), memory);
        Ok(Self { endpoint, agent, link })
    }

    /// Lets senders of this process become edges of the switch.
    pub fn edges(&mut self) -> Edges {
        self.agent.backend_mut().edges()
    }

    /// Forwards datagrams until `stop`.
    pub fn run(mut self, stop: &Stop) -> Result<(), SwitchError> {
        let waker = self.link.begin(stop)?;
        while !stop.is_stopped() {
            let link_ready = self.sleep(&waker)?;
            waker.clear();
            self.link.answer(&mut self.agent);
            for _ in 0..FORWARD_ROUNDS_MAX {
                if self.forward()? == Left::Nothing {
                    break;
                }
            }
            let now = now();
            if link_ready || self.link.next_deadline().is_some_and(|deadline_ns| deadline_ns <= now.boot_ns) {
                self.link.turn(now, &mut self.agent);
            }
        }
        Ok(())
    }

    /// Sleeps until there is work. Returns whether a stream of the agent is ready.
    fn sleep(&self, waker: &Waker) -> io::Result<bool> {
        let fixed = [readable(&self.endpoint), readable(waker)];
        let mut descriptors: Vec<PollFd<'_>> = fixed.into_iter().chain(self.link.interests()).collect();
        wait(&mut descriptors, self.link.next_deadline())?;
        Ok(descriptors[2..].iter().any(is_ready))
    }

    fn forward(&mut self) -> io::Result<Left> {
        let (router, client_tracer) = (&mut self.agent.backend_mut().own, &mut self.link.client_tracer);
        let wire_port = self.endpoint.local_address().port();
        self.endpoint.forward(|message, forward| {
            let Message { from, destination: Some(destination), bytes } = message else { return };
            let to = SocketAddrV4::new(destination, wire_port);
            if !client_tracer.is_of_watched(bytes) {
                return route(router, from, to, bytes, forward);
            }
            let arrived = now();
            let mut copies = 0;
            route(router, from, to, bytes, &mut |receiver, piece| {
                copies += 1;
                forward(receiver, piece);
            });
            client_tracer.note_passed(arrived, bytes, copies);
        })
    }
}

/// Called with each destination, and with the bytes to send if the datagram is a piece of a scan.
type Forward<'a> = &'a mut dyn FnMut(SocketAddrV4, Option<&[u8]>);

/// Runs the pipeline on a datagram. A datagram for no vring has no receivers, and is dropped. Each
/// piece of a scan is forwarded with the bytes that it has at that moment, any other datagram with
/// its final bytes.
fn route(router: &mut Router, from: SocketAddrV4, to: SocketAddrV4, bytes: &mut [u8], forward: Forward<'_>) {
    // Only hot keys depend on the time.
    let now_ns = if edge::is_of_hot_keys(bytes) { now().boot_ns } else { 0 };
    let mut passed = router.process(now_ns, Ingress::Socket, from, to, bytes);
    while let DatagramVerdict::Piece(hop, rest) = passed {
        if let Some(host) = hop.and_then(Hop::host) {
            forward(router.delivery_address(host, to), Some(bytes));
        }
        passed = router.process_scan_rest(Ingress::Socket, from, to, bytes, &rest);
    }
    let mut receivers = [HostId(0); GROUP_MEMBERS_MAX];
    let mut count = 0;
    let mut receive = |hop: Hop| {
        // A user-space switch has no trunks: configurations with trunks are refused.
        let Some(host) = hop.host() else { return };
        receivers[count] = host;
        count += 1;
    };
    match passed {
        DatagramVerdict::Unicast(hop) => receive(hop),
        DatagramVerdict::Multicast(copies) => copies.for_each(receive),
        DatagramVerdict::Answered(length) => forward(from, Some(&bytes[..length])),
        DatagramVerdict::NotVring | DatagramVerdict::Piece(..) | DatagramVerdict::Dropped => {}
    }
    for receiver in &receivers[..count] {
        forward(router.delivery_address(*receiver, to), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_switch_fixtures::datagrams::{self, DatagramFixture};

    #[test]
    fn user_space_switch_passes_the_fixtures() {
        let process = |router: &mut Router, fixture: &DatagramFixture, bytes: &mut [u8]| {
            let (mut received, mut whole) = (Vec::new(), Vec::new());
            route(router, fixture.from, fixture.to, bytes, &mut |to, piece| match piece {
                Some(piece) => received.push((to, piece.to_vec())),
                None => whole.push(to),
            });
            received.extend(whole.into_iter().map(|to| (to, bytes.to_vec())));
            // The pipeline ignores traffic between hosts.
            let is_plain = fixture.expected(true).is_none();
            (!is_plain || !received.is_empty()).then_some(received)
        };
        let fixtures = datagrams::all().into_iter().filter(DatagramFixture::is_from_a_socket);
        let failures: Vec<String> = fixtures.filter_map(|fixture| fixture.run(true, process).err()).collect();
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
