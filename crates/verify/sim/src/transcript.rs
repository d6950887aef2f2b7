//! Transcript lines: sender, receiver and content of each message.
//!
//! Heartbeats, leases, probes and status queries of switches are left out: they are periodic and
//! carry no news.

mod streams;

use crate::chain_room;
use crate::client::Client;
use crate::network::Host;
use nicekv_proto::bundle::Bundle;
use nicekv_proto::chain::Forwards;
use nicekv_proto::control::{Assign, AssignAck, MemberRole, MemberState, Report, ReportKind};
use nicekv_proto::quorum::{Content, Timestamp};
use nicekv_proto::recovery::Wanted;
use nicekv_proto::repair::KeyState;
use nicekv_proto::replication::{Acks, Decision, Decisions, Effect, Watermark};
use nicekv_proto::transaction::Step;
use nicekv_proto::{
    ClientId, Condition, Datagram, Expiry, Header, OpId, Operation, Reply, Status, Update, hot,
};
use nicekv_switch::control::{ControlReply, ControlRequest};
use std::collections::BTreeMap;

/// Stands for a datagram that cannot be decoded.
const NONSENSE: &str = "nonsense";

/// Readable names of clients' ops.
#[derive(Clone, Debug, Default)]
pub struct Names {
    clients: BTreeMap<ClientId, String>,
}

impl Names {
    /// Names these clients c1, c2, …
    pub fn new(clients: &[Client]) -> Self {
        let clients = clients.iter().enumerate();
        Self { clients: clients.map(|(index, client)| (client.id(), format!("c{}", index + 1))).collect() }
    }

    /// Names the client id of a node's own ops, since its last start.
    pub fn add(&mut self, client: ClientId, name: String) {
        self.clients.insert(client, name);
    }

    /// The name of a host.
    pub fn host(&self, host: Host) -> String {
        match host {
            Host::Node(index) => format!("node-{}", index + 1),
            Host::Client(index) => format!("client-{}", index + 1),
            Host::Metadata => "metadata".into(),
            Host::Instance(index) => format!("metadata-{index}"),
            Host::Switch(index) => format!("switch-{}", index + 1),
        }
    }

    /// The name of an op, which is also the name of the version that it wrote.
    pub fn op(&self, op: OpId) -> String {
        match self.clients.get(&op.client) {
            _ if op == OpId::NONE => "nothing".into(),
            Some(name) => format!("{name}:{}", op.sequence),
            None => op.to_string(),
        }
    }

    /// The line of a datagram between hosts; `None` if it is periodic.
    pub fn line(&self, from: Host, to: Host, bytes: &[u8]) -> Option<String> {
        let what = self.datagram(bytes)?;
        Some(format!("{:8} -> {:8}  {what}", self.host(from), self.host(to)))
    }

    fn bundle(&self, header: &Header, bundle: &Bundle<'_>) -> String {
        let datagrams = bundle.datagrams(header).filter_map(|(header, body)| {
            Datagram::of(&header, body)
                .map_or_else(|_| Some(NONSENSE.into()), |datagram| self.told(&header, datagram))
        });
        let told: Vec<String> = datagrams.collect();
        format!("bundle: {}", told.join("; "))
    }

    /// The content of a datagram in words; `None` if it is periodic.
    pub fn datagram(&self, bytes: &[u8]) -> Option<String> {
        match Datagram::decode(&chain_room::plain(bytes)) {
            Ok((header, datagram)) => self.told(&header, datagram),
            Err(_) => Some(NONSENSE.into()),
        }
    }

    /// Messages of quorum keyspaces.
    fn quorum(&self, datagram: &Datagram<'_>) -> Option<String> {
        Some(match datagram {
            Datagram::QuorumQuery(query) => {
                format!("{} what do you hold of {}?", self.op(query.op), text(query.key))
            }
            Datagram::QuorumStore(store) => {
                let (epoch, version) = (store.epoch.0, self.version(store.timestamp));
                format!("{} epoch {epoch}: hold {} of {version}", self.op(store.op), text(store.key))
            }
            Datagram::QuorumHeld(held) => {
                let deletion = if held.content == Content::Absent { ", a deletion" } else { "" };
                let what = match held.timestamp {
                    Timestamp::NEVER => "nothing".into(),
                    timestamp => format!("{}{deletion}", self.version(timestamp)),
                };
                format!("{} epoch {}: {what}", self.op(held.op), held.epoch.0)
            }
            Datagram::Tombstones(told) => {
                let count = told.entries().count();
                format!("epoch {}: {:?} {count} deletions", told.epoch.0, told.stage)
            }
            Datagram::TombstonesAck(ack) => format!("epoch {}: done with deletions", ack.epoch.0),
            Datagram::Entrust(entrust) => {
                let version = self.version(entrust.timestamp);
                format!("epoch {}: hold {} of {version}", entrust.epoch.0, text(entrust.key))
            }
            Datagram::Entrusted(held) => format!("epoch {}: held", held.epoch.0),
            _ => return None,
        })
    }

    fn scan(&self, datagram: &Datagram<'_>) -> Option<String> {
        Some(match datagram {
            Datagram::Scan(scan) => {
                let epoch = scan.forwarded.map(|(_, epoch, _)| format!(", passed on in epoch {}", epoch.0));
                let (vnode, after) = (scan.digest.vnode(), text(scan.after.unwrap_or_default()));
                let passed_on = epoch.unwrap_or_default();
                format!("{} scan from {vnode:04x} after {after}{passed_on}", self.op(scan.op))
            }
            Datagram::ScanPiece(piece) => {
                let keys: Vec<_> = piece.entries().map(|entry| text(entry.key)).collect();
                let more = if piece.more { ", and more" } else { "" };
                format!("{} there is {}{more}", self.op(piece.op), keys.join(" "))
            }
            _ => return None,
        })
    }

    fn published(&self, datagram: &Datagram<'_>) -> Option<String> {
        let (op, said, name) = match datagram {
            Datagram::Listen(listen) => (listen.op, "listen to", text(listen.name)),
            Datagram::Listening(listening) => (listening.op, "noted", text(b"")),
            Datagram::Publish(publish) => (publish.op, "publish to", text(publish.channel)),
            Datagram::Published(published) => (published.op, "published to", text(published.channel)),
            _ => return None,
        };
        Some(format!("{} {said} {name}", self.op(op)))
    }

    fn version(&self, Timestamp { counter, op }: Timestamp) -> String {
        format!("version {counter} by {}", self.op(op))
    }

    fn told(&self, header: &Header, datagram: Datagram<'_>) -> Option<String> {
        Some(match datagram {
            Datagram::Get(get) => {
                let passed_on =
                    get.forwarded.map(|(_, epoch, _)| format!(", passed on in epoch {}", epoch.0));
                format!("{} get {}{}", self.op(get.op), text(get.key), passed_on.unwrap_or_default())
            }
            scan @ (Datagram::Scan(_) | Datagram::ScanPiece(_)) => self.scan(&scan)?,
            Datagram::Update(update) => self.update(&update),
            Datagram::Reply(reply) => self.reply(&reply),
            Datagram::QuorumQuery(_)
            | Datagram::QuorumStore(_)
            | Datagram::QuorumHeld(_)
            | Datagram::Tombstones(_)
            | Datagram::TombstonesAck(_)
            | Datagram::Entrust(_)
            | Datagram::Entrusted(_) => self.quorum(&datagram)?,
            Datagram::Bundle(bundle) => self.bundle(header, &bundle),
            Datagram::Fragment(part) => format!("{} part {} of {}", self.op(part.op), part.index, part.count),
            Datagram::Acks(acks) => self.acks(&acks),
            Datagram::Decisions(decisions) => self.decisions(&decisions),
            Datagram::Forwards(forwards) => self.forwards(&forwards),
            Datagram::Resend(resend) => {
                format!("epoch {}, passed on: {}", resend.epoch.0, self.datagram(resend.datagram)?)
            }
            Datagram::RecoverRequest(_) | Datagram::RecoverReply(_) | Datagram::Fetch(_) => {
                self.recovery(&datagram)?
            }
            repair @ (Datagram::RepairRequest(_) | Datagram::RepairReply(_)) => Self::repair(&repair)?,
            large @ (Datagram::Chunk(_) | Datagram::TransferReport(_) | Datagram::ReadChunks(_)) => {
                self.large(&large)?
            }
            Datagram::Listen(_) | Datagram::Listening(_) | Datagram::Publish(_) | Datagram::Published(_) => {
                self.published(&datagram)?
            }
            directed @ (Datagram::Directed(_) | Datagram::Misdirected(_)) => self.directed(&directed)?,
            hot @ (Datagram::HotConfirm(_)
            | Datagram::HotClose(_)
            | Datagram::HotClosed(_)
            | Datagram::HotAssign(_)
            | Datagram::HotCopy(_)
            | Datagram::HotValue(_)
            | Datagram::HotDrop(_)) => describe_hot(&hot)?,
            Datagram::HotPulse(_)
            | Datagram::HotPulsed(_)
            | Datagram::HotLease(_)
            | Datagram::HotLeased(_) => return None,
            // Sent with every heartbeat, or every few.
            Datagram::DirectoryQuery(_) | Datagram::DirectoryPage(_) | Datagram::ScrubPage(_) => return None,
            Datagram::Usage(_) | Datagram::Sources(_) | Datagram::Heat(_) => return None,
            // These are not sent in the simulated clusters.
            Datagram::ChunkRequest(_)
            | Datagram::ChunkAccept(_)
            | Datagram::ChunkRead(_)
            | Datagram::ChunkAnswer(_) => return None,
            Datagram::Assign(assign) => describe_assign(&assign),
            Datagram::AssignAck(ack) => describe_ack(&ack),
            Datagram::Report(report) => describe_report(&report),
            Datagram::Heartbeat(_)
            | Datagram::HeartbeatReply(_)
            | Datagram::Probe(_)
            | Datagram::ProbeReply(_) => return None,
        })
    }

    fn directed(&self, datagram: &Datagram<'_>) -> Option<String> {
        Some(match datagram {
            Datagram::Directed(directed) => {
                format!("epoch {}, directed: {}", directed.epoch.0, self.datagram(directed.request)?)
            }
            Datagram::Misdirected(refusal) => {
                format!("{} misdirected, epoch is {}", self.op(refusal.op), refusal.epoch.0)
            }
            _ => return None,
        })
    }

    /// Messages of recovery between a new primary and the other members.
    fn recovery(&self, datagram: &Datagram<'_>) -> Option<String> {
        Some(match datagram {
            Datagram::RecoverRequest(request) => {
                let (epoch, cursor) = (request.epoch.0, request.cursor);
                let more = if cursor > 0 { format!(" (after the first {cursor})") } else { String::new() };
                format!("epoch {epoch}: what do you hold?{more}")
            }
            Datagram::RecoverReply(reply) => {
                let ops: Vec<String> = reply.undecided.iter().map(|open| self.op(open.op)).collect();
                let ops = if ops.is_empty() { "nothing".into() } else { ops.join(", ") };
                format!("epoch {}: decisions through {}, undecided: {ops}", reply.epoch.0, reply.logged)
            }
            Datagram::Fetch(fetch) => match fetch.wanted {
                Wanted::Op(op) => format!("epoch {}: send me {}", fetch.epoch.0, self.op(op)),
                Wanted::DecisionsAfter(index) => {
                    format!("epoch {}: send me the decisions after {index}", fetch.epoch.0)
                }
            },
            _ => return None,
        })
    }

    fn update(&self, update: &Update<'_>) -> String {
        let key = text(update.key);
        let change = match &update.operation {
            Operation::Set { value, expiry: Expiry::At(_) } => {
                format!("put {key} = {}, which expires", text(value))
            }
            Operation::Set { value, .. } => format!("put {key} = {}", text(value)),
            Operation::Delete => format!("delete {key}"),
            Operation::Increment(delta) => format!("increment {key} by {delta}"),
            Operation::AppendLarge(_) => format!("append a large value to {key}"),
            Operation::Append(suffix) => format!("append {} to {key}", text(suffix)),
            Operation::Transaction(steps) => {
                let steps = Step::each(steps).map(|Step { key, act }| format!("{} {act:?}", text(key)));
                format!("transaction: {}", steps.collect::<Vec<_>>().join(", "))
            }
            other => format!("{other:?} of {key}"),
        };
        let condition = match update.condition {
            Condition::Always => String::new(),
            Condition::IfAbsent => " if absent".into(),
            Condition::IfPresent => " if present".into(),
            Condition::IfVersion(version) => format!(" if its version is {}", self.op(version)),
            Condition::Stamped(stamp) => format!(" with stamp {}", stamp.0),
            Condition::StampedIfVersion { stamp, version } => {
                format!(" with stamp {} if its version is {}", stamp.0, self.op(version))
            }
        };
        let old = if update.return_old { ", telling the old value" } else { "" };
        format!("{} {change}{condition}{old}", self.op(update.op))
    }

    fn reply(&self, reply: &Reply<'_>) -> String {
        let status = match reply.status {
            Status::Ok => "done".into(),
            Status::NotFound => "not found".into(),
            Status::ConditionFailed => "condition failed".into(),
            other => format!("{other:?}"),
        };
        let value = reply.value.map(|value| format!(", value {}", text(value))).unwrap_or_default();
        let version = match reply.version {
            version if version == reply.op || version == OpId::NONE => String::new(),
            version => format!(", version {}", self.op(version)),
        };
        let integer = if reply.integer == 0 { String::new() } else { format!(", number {}", reply.integer) };
        format!("{} {status}{value}{version}{integer}", self.op(reply.op))
    }

    fn acks(&self, acks: &Acks<'_>) -> String {
        let prepares = acks.prepares.iter().map(|ack| {
            let contended = if ack.contended { " (contended)" } else { "" };
            let refused = if ack.refused { " (refused)" } else { "" };
            format!("ack {}{contended}{refused}", self.op(ack.op))
        });
        let progress = acks.progress.iter().map(|progress| {
            let gap = if progress.gap { ", send me the rest" } else { "" };
            format!("logged decisions through {}, synced through {}{gap}", progress.logged, progress.synced)
        });
        prepares.chain(progress).collect::<Vec<_>>().join("; ")
    }

    fn decisions(&self, decisions: &Decisions<'_>) -> String {
        let list = decisions.decisions.iter().map(|decision| self.decision(&decision));
        let watermarks = decisions.watermarks.iter().map(|watermark| {
            format!("epoch {}: all hold decisions through {}", watermark.epoch.0, watermark.synced)
        });
        list.chain(watermarks).collect::<Vec<_>>().join("; ")
    }

    fn forwards(&self, forwards: &Forwards<'_>) -> String {
        let list = forwards.entries.iter().map(|entry| {
            let decision = Decision { contended: false, ..entry.decision };
            format!("entry: {}", self.decision(&decision))
        });
        let watermarks = forwards.watermarks.iter().map(|watermark| {
            let Watermark { epoch, base, synced, .. } = watermark;
            format!("epoch {} begins after {base}: synced up to here through {synced}", epoch.0)
        });
        list.chain(watermarks).collect::<Vec<_>>().join("; ")
    }

    fn decision(&self, decision: &Decision<'_>) -> String {
        let effect = match decision.effect {
            Effect::None => format!("no effect, {:?}", decision.status),
            Effect::StorePrepared => "stored".into(),
            Effect::Store => format!("stored as {}", text(decision.value)),
            Effect::Remove => "removed".into(),
            Effect::Transaction => "took its steps".into(),
        };
        let contended = if decision.contended { " (contended)" } else { "" };
        format!("decision {}: {} {effect}{contended}", decision.index, self.op(decision.op))
    }

    /// The line of a request to a switch's agent; `None` if it is periodic.
    pub fn tables_request(&self, switch: usize, request: &ControlRequest) -> Option<String> {
        let ControlRequest::Install { term, tables } = request else { return None };
        let switch = self.host(Host::Switch(switch));
        Some(format!("metadata -> {switch}  install tables {}, term {term}", tables.generation))
    }
}

/// The line of an agent's answer; `None` if it is periodic.
pub fn tables_reply(switch: usize, reply: &ControlReply) -> Option<String> {
    let what = match reply {
        ControlReply::Installed { generation, .. } => format!("tables {generation} are in force"),
        ControlReply::Refused { current_term } => format!("refused, term {current_term} was here"),
        ControlReply::Failed { generation, reason } => format!("tables {generation} failed: {reason}"),
        ControlReply::Status { .. }
        | ControlReply::Requests { .. }
        | ControlReply::Register { .. }
        | ControlReply::Ports { .. }
        | ControlReply::HotChanged { .. }
        | ControlReply::HotFailed { .. }
        | ControlReply::Hot { .. }
        | ControlReply::Found { .. } => {
            return None;
        }
    };
    Some(format!("switch-{} -> metadata  {what}", switch + 1))
}

fn describe_report(report: &Report) -> String {
    let what = match report.kind {
        ReportKind::CopyDone => "everything is copied".to_owned(),
        ReportKind::Accuse(node) => format!("{node} does not answer"),
        ReportKind::Forgot(node) => format!("{node} has forgotten what it had confirmed"),
        ReportKind::Stray(_) => "found on the disk, and not told of it".to_owned(),
        ReportKind::Fence => "an epoch after this one".to_owned(),
        ReportKind::Formed => "its children are formed".to_owned(),
        ReportKind::Drained(index) => format!("drained at decision {index}"),
    };
    format!("partition {}: {what}", report.partition)
}

fn describe_state(state: &KeyState<'_>) -> &'static str {
    match state {
        KeyState::Stored(_) => "here is",
        KeyState::Absent => "I have no",
        KeyState::Corrupt => "mine is damaged, too:",
    }
}

/// Messages about hot keys.
fn describe_hot(datagram: &Datagram<'_>) -> Option<String> {
    let (stamp, said) = match datagram {
        Datagram::HotConfirm(hot::HotConfirm { stamp, .. }) => (stamp, "my copy is number"),
        Datagram::HotClose(hot::HotClose { stamp, .. }) => (stamp, "close above"),
        Datagram::HotClosed(hot::HotClosed { stamp, .. }) => (stamp, "closed at"),
        Datagram::HotCopy(hot::HotCopy { stamp, .. }) => (stamp, "a copy, number"),
        Datagram::HotValue(hot::HotValue { stamp, .. }) => (stamp, "a reply, number"),
        Datagram::HotAssign(assign) => {
            let in_switch = if assign.in_switch { ", and the switch" } else { "" };
            let holders = assign.holders.len();
            return Some(format!("hot: {holders} holders of instance {}{in_switch}", assign.instance));
        }
        Datagram::HotDrop(hot::HotDrop { instance, .. }) => {
            return Some(format!("hot: drop copies up to instance {instance}"));
        }
        _ => return None,
    };
    Some(format!("hot instance {:#x}: {said} {}", stamp.instance, stamp.seen))
}

fn describe_ack(ack: &AssignAck) -> String {
    let activated = if ack.activated { ", activated" } else { "" };
    let discarded = if ack.discarded { ", discarded" } else { "" };
    format!("ack partition {} epoch {}{activated}{discarded}", ack.partition, ack.epoch.0)
}

fn describe_assign(assign: &Assign) -> String {
    let members = assign.members.iter().map(|member| {
        let joining = if member.state == MemberState::Joining { " joining" } else { "" };
        let role = match member.role {
            MemberRole::Original => "",
            MemberRole::Newcomer => " newcomer",
            MemberRole::Leaving => " leaving",
            MemberRole::Handoff => " handoff",
        };
        format!("{}{joining}{role}", member.node)
    });
    let members = members.collect::<Vec<_>>().join(", ");
    let activated = if assign.activated { "" } else { ", not yet activated" };
    let (partition, epoch, primary) = (assign.partition, assign.epoch.0, assign.primary);
    let discard = if assign.discard { "; discard it" } else { "" };
    if assign.members.is_empty() {
        return format!("partition {partition} epoch {epoch}{activated}: nobody is a member{discard}");
    }
    format!("partition {partition} epoch {epoch}{activated}: primary {primary}, members {members}{discard}")
}

/// A datagram in words, with client ids instead of names.
pub fn describe(bytes: &[u8]) -> String {
    Names::default().datagram(bytes).unwrap_or_else(|| "heartbeat, lease or probe".into())
}

fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) => text.into(),
        _ => format!("{:?}", String::from_utf8_lossy(bytes)),
    }
}
