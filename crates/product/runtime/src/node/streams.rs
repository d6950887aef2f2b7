//! TCP connections, dialled and accepted, on which joining replicas copy partitions (R7). Commands
//! that query the node (`nicekv explain`, `nicekv trace`) connect here, too, and send a greeting
//! first.

use super::backups::Backups;
use super::storage::NodeStorage;
use crate::control_plane::{
    AdminRequest, Greeting, NodeAnswer, NodeDurations, NodeEvent, NodeGets, NodePartition, NodeTrace, Role,
    decode, encode,
};
use crate::{FrameLimits, FramedStream, PollFd, accept, dial, readable};
use nicekv_proto::recovery::FRAME_BYTES_MAX;
use nicekv_proto::{ClientId, Durations, Now, PartitionId};
use nicekv_replica::Replica;
use nicekv_replica::{Counters, HotCounters, Standing, Step, StreamPeer, TraceEvent};
use nicekv_store::StoreError;
use std::io;
use std::net::TcpListener;

/// Most connections, in both directions together. Above that, frames to further peers are dropped,
/// and their senders repeat them.
pub const STREAMS_MAX: usize = 48;
/// Each side has at most one frame per partition in flight.
const LIMITS: FrameLimits =
    FrameLimits { frame_bytes_max: FRAME_BYTES_MAX, output_bytes_max: 16 * FRAME_BYTES_MAX };

pub(super) struct Streams {
    listener: TcpListener,
    open: Vec<(StreamPeer, FramedStream)>,
    accepted: u64,
    /// Connections of commands.
    visitors: Vec<u64>,
    backups: Backups,
}

impl Streams {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, open: Vec::new(), accepted: 0, visitors: Vec::new(), backups: Backups::default() }
    }

    fn is_full(&self) -> bool {
        self.open.len() >= STREAMS_MAX
    }

    pub(super) fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        let listener = (!self.is_full()).then(|| readable(&self.listener));
        listener.into_iter().chain(self.open.iter().map(|(_, stream)| stream.interest()))
    }

    /// Accepts connections, and passes frames to the core. A broken stream is dropped: the side
    /// that waits for an answer repeats its request.
    pub(super) fn receive(&mut self, now: Now, core: &mut Replica, storage: &NodeStorage) -> io::Result<()> {
        while !self.is_full()
            && let Some(stream) = accept(&self.listener)?
        {
            self.accepted += 1;
            self.open.push((StreamPeer::Accepted(self.accepted), FramedStream::new(stream, LIMITS)));
        }
        let Self { open, visitors, backups, .. } = self;
        open.retain_mut(|(peer, stream)| {
            let (mut asked, mut is_stranger) = (Vec::new(), false);
            let is_open = stream.receive(|frame| match peer {
                StreamPeer::Accepted(number) if visitors.contains(number) => asked.push(frame.to_vec()),
                StreamPeer::Accepted(number) if is_visitor(frame) => visitors.push(*number),
                StreamPeer::Accepted(_) if Greeting::other_version(frame).is_some() => is_stranger = true,
                _ => core.handle_stream(now, *peer, frame),
            });
            if is_stranger {
                // The peer gets a greeting with this release's version, and is disconnected.
                let _ = stream.queue(&encode(&Greeting::new(Role::Admin))).and_then(|()| stream.flush());
            }
            is_open.is_ok()
                && !is_stranger
                && asked.iter().all(|frame| match decode(frame) {
                    Ok(AdminRequest::Backup(id)) => backups.ask(*peer, PartitionId(id), stream).is_some(),
                    Ok(asked) => answer(now, core, storage, stream, &asked).is_some(),
                    Err(_) => false,
                })
        });
        let is_there = |number: &u64| open.iter().any(|(peer, _)| *peer == StreamPeer::Accepted(*number));
        visitors.retain(is_there);
        Ok(())
    }

    /// Sends the core's frames, dialling new connections if necessary.
    pub(super) fn send(&mut self, core: &mut Replica) {
        while let Some((peer, frame)) = core.poll_stream() {
            if let Some(stream) = self.stream(peer) {
                // If the peer does not read, the frame is lost, and the peer repeats its request.
                let _ = stream.queue(&frame);
            }
        }
        self.open.retain_mut(|(_, stream)| stream.flush().is_ok());
    }

    /// Continues a running backup. Call it when the storage requests of this turn are executed.
    pub(super) fn back_up(
        &mut self,
        now: Now,
        core: &mut Replica,
        storage: &mut NodeStorage,
    ) -> Result<(), StoreError> {
        let Self { open, backups, .. } = self;
        let Some(asker) = backups.asker() else { return Ok(()) };
        let stream = open.iter_mut().find(|(peer, _)| *peer == asker).map(|(_, stream)| stream);
        backups.go_on(now, core, storage, stream)
    }

    /// When to continue a running backup.
    pub(super) fn next_deadline(&self) -> u64 {
        self.backups.next_deadline()
    }

    fn stream(&mut self, peer: StreamPeer) -> Option<&mut FramedStream> {
        let known = self.open.iter().position(|(open, _)| *open == peer);
        let index = match (known, peer) {
            (Some(index), _) => index,
            (None, StreamPeer::Dialed(address)) if !self.is_full() => {
                self.open.push((peer, FramedStream::new(dial(address).ok()?, LIMITS)));
                self.open.len() - 1
            }
            _ => return None,
        };
        Some(&mut self.open[index].1)
    }
}

/// Whether the first frame of a stream is a command's greeting. A copy frame never is.
fn is_visitor(frame: &[u8]) -> bool {
    Greeting::decode(frame).is_ok_and(|greeting| greeting.role == Role::Admin)
}

/// Answers a command. `None`: nodes do not answer this request.
fn answer(
    now: Now,
    core: &mut Replica,
    storage: &NodeStorage,
    stream: &mut FramedStream,
    asked: &AdminRequest,
) -> Option<()> {
    let json = match *asked {
        AdminRequest::Partition(id) => serde_json::to_vec(&told(core, PartitionId(id))),
        AdminRequest::Watch(client) => {
            core.trace().watch(ClientId(client));
            serde_json::to_vec(&traced(now, core, ClientId(client)))
        }
        AdminRequest::Watched(client) => serde_json::to_vec(&traced(now, core, ClientId(client))),
        AdminRequest::Durations => serde_json::to_vec(&durations(core, storage)),
        _ => return None,
    };
    stream.queue(&json.ok()?).ok()
}

fn durations(core: &Replica, storage: &NodeStorage) -> NodeDurations {
    let status = core.status();
    let named = |name: &str, took: &Durations| (name.to_owned(), took.counts().to_vec());
    let mut stages =
        vec![named("put synced", &status.puts.synced), named("put decided", &status.puts.decided)];
    stages.extend(storage.observe_log().map(|log| named("log sync", &log.syncs)));
    let Counters { gets, gets_elsewhere, .. } = status.counters;
    let HotCounters { answered: of_copies, answered_elsewhere, .. } = status.hot;
    let by_kernel = gets_elsewhere + answered_elsewhere;
    let gets = NodeGets { by_process: gets + of_copies - by_kernel, by_kernel, of_copies };
    NodeDurations { node: status.node.0, stages, gets }
}

fn traced(now: Now, core: &mut Replica, client: ClientId) -> NodeTrace {
    let node = core.status().node.0;
    let event = |event: &TraceEvent| NodeEvent {
        at_ns: event.at_ns,
        sequence: event.sequence,
        what: in_words(event.step),
        by: match event.step {
            Step::Acknowledged(node) => Some(node.0),
            _ => None,
        },
    };
    NodeTrace { node, now_ns: now.boot_ns, events: core.trace().events(client).iter().map(event).collect() }
}

fn in_words(step: Step) -> String {
    let path = |contended| if contended { "slow path" } else { "fast path" };
    match step {
        Step::Arrived => "arrived".into(),
        Step::Synced => "logged and synced".into(),
        Step::Acknowledged(_) => "acknowledged".into(),
        Step::Decided { contended } => format!("decided, {}", path(contended)),
        Step::Learned { contended } => format!("the decision arrived, {}", path(contended)),
        Step::Shown => "shows".into(),
        Step::PassedOn => "passed on to the primary".into(),
        Step::Waits => "waits for an op of its key".into(),
        Step::Answered(status) => format!("answered: {status:?}"),
    }
}

fn told(core: &Replica, id: PartitionId) -> NodeAnswer {
    let status = core.status();
    let partition = status.partition(id).map(|partition| NodePartition {
        epoch: partition.epoch.0,
        standing: match partition.standing {
            Standing::Outside => "outside",
            Standing::Joining => "joining",
            Standing::Handoff => "handoff",
            Standing::Consistent => "consistent",
        }
        .into(),
        primary: partition.primary.0,
        leads: partition.leads,
        open_ops: partition.open_ops,
        logged: partition.logged,
        released: partition.released,
    });
    NodeAnswer { node: status.node.0, term: status.term.0, partition }
}
