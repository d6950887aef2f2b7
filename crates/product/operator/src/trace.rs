//! `nicekv trace`: runs one put or get with this command's own client, and shows it hop by hop with
//! times.
//!
//! ```text
//!   members and switches watch this client ─▶ read switch counters ─▶ the operation ─▶ collect what members and switches saw, read counters
//! ```
//!
//! Switches differ in the events that they report for a datagram. A switch in user space reports
//! that the datagram passed, one at tc that it arrived; one at XDP reports nothing, and a note says
//! so. The counters of table entries are available for all kinds.
//!
//! The clock of another host is compared by asking for its time; half the round trip is the error.
//! If the difference is smaller than the error, the clocks count as equal, as on a single machine.

use crate::admin::answer;
use crate::client::{TargetArguments, client_of, failed};
use crate::discovery::{self, Purpose};
use crate::explain::{Asked, Explanation};
use crate::failure::Failure;
use crate::output::print;
use crate::table::Table;
use futures_executor::block_on;
use nicekv_client::{Request, SubmitError};
use nicekv_metadata::{NodeStatus, PartitionStatus};
use nicekv_proto::{ClientId, Expiry};
use nicekv_runtime::control_plane::{AdminRequest, NodeTrace, SwitchAnswer};
use nicekv_runtime::{admin, new_client_id, now};
use nicekv_switch::control::Lookup;
use serde::Serialize;
use std::net::SocketAddrV4;
use std::time::Duration;

/// Timeout for a node.
const NODE_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause for what happens after the reply, such as decisions at the other members.
const SETTLE_TIME: Duration = Duration::from_millis(100);

/// `nicekv trace`
#[derive(clap::Subcommand)]
pub enum TraceCommand {
    /// Store a value and show each hop
    Put(TracePutArguments),
    /// Read a value and show each hop
    Get(TraceGetArguments),
}

/// `nicekv trace put`
#[derive(clap::Args)]
pub struct TracePutArguments {
    /// Key, at most 1024 bytes
    key: String,
    /// Value, at most 1024 bytes, and 1280 with the key
    value: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: TargetArguments,
}

/// `nicekv trace get`
#[derive(clap::Args)]
pub struct TraceGetArguments {
    /// Key, at most 1024 bytes
    key: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: TargetArguments,
}

/// The clock of a node or switch, relative to this host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Clock {
    /// Remote time minus local time; 0 if the difference is within the error.
    ahead_ns: i64,
    error_ns: u64,
}

/// One event of the trace.
#[derive(Debug, PartialEq, Serialize)]
struct Step {
    /// Time since the client sent the request.
    after_us: f64,
    place: String,
    what: String,
}

/// A traced request and its result.
#[derive(Serialize)]
struct Traced {
    op: &'static str,
    key: String,
    keyspace: String,
    client: String,
    partition: u32,
    epoch: u32,
    /// For each switch: packets that matched its entries during the request, including those of
    /// other clients.
    switches: Vec<String>,
    /// The events in order of time.
    steps: Vec<Step>,
    /// Notes about members that did not answer, and clocks that differ.
    notes: Vec<String>,
}

/// A member that was asked to watch the client.
struct Watched {
    name: String,
    address: SocketAddrV4,
    /// `None`: the member did not answer.
    clock: Option<Clock>,
}

pub fn run(command: &TraceCommand) -> Result<(), Failure> {
    let (key, value, json, target) = match command {
        TraceCommand::Put(put) => (&put.key, Some(put.value.as_bytes()), put.json, &put.target),
        TraceCommand::Get(get) => (&get.key, None, get.json, &get.target),
    };
    let request = Request::Get { key: key.as_bytes() };
    request.check().map_err(|error: SubmitError| Failure::environment(error))?;
    let traced = trace(key, value, target)?;
    let text = match json {
        true => serde_json::to_string(&traced).map_err(Failure::environment)?,
        false => describe(&traced).join("\n"),
    };
    print(format!("{text}\n").as_bytes())
}

fn trace(key: &str, value: Option<&[u8]>, target: &TargetArguments) -> Result<Traced, Failure> {
    let purpose = if value.is_some() { Purpose::Change } else { Purpose::Read };
    let endpoint = discovery::find(&target.endpoint, purpose)?;
    let asked = Asked { endpoint: &endpoint, key, keyspace: &target.keyspace };
    let id = new_client_id().map_err(Failure::environment)?;
    let client = client_of(target, id, purpose)?;
    let (before, nodes) = asked.explain()?;
    let members = watch(&before.partition, &nodes, id);
    let switch_traces = SwitchTraces::begin(&endpoint, Lookup { watch: Some(id.0), ..before.lookup() })?;
    let begun_ns = now().boot_ns;
    let outcome = block_on(async {
        match value {
            Some(value) => client.put(key.as_bytes(), value, Expiry::Never).await.map(|_| "done".to_owned()),
            None => client.get(key.as_bytes()).await.map(|value| match value {
                Some(value) => format!("{} bytes", value.bytes.len()),
                None => "no value".into(),
            }),
        }
    });
    let ended_ns = now().boot_ns;
    std::thread::sleep(SETTLE_TIME);
    let (seen_by_switches, mut notes) = switch_traces.end(begun_ns)?;
    let (after, _) = asked.explain()?;
    let to = if value.is_some() { before.multicast } else { before.unicast };
    let own =
        |at_ns: u64, what: String| Step { after_us: micros(at_ns, begun_ns), place: "client".into(), what };
    let answer = outcome.map_err(failed).unwrap_or_else(|failure| format!("failed: {failure}"));
    let mut steps =
        vec![own(begun_ns, format!("sends to {to}")), own(ended_ns, format!("has its answer: {answer}"))];
    steps.extend(seen_by_switches);
    for member in members {
        let (seen, note) = collect(&member, &nodes, id, begun_ns);
        steps.extend(seen);
        notes.extend(note);
    }
    steps.sort_by(|one, other| one.after_us.total_cmp(&other.after_us));
    Ok(Traced {
        op: if value.is_some() { "put" } else { "get" },
        key: key.into(),
        keyspace: before.keyspace.clone(),
        client: format!("{:016x}", id.0),
        partition: before.partition.id,
        epoch: before.partition.epoch,
        switches: counted(&before, &after, value.is_some()),
        steps,
        notes,
    })
}

/// The switches that were asked to watch the client.
struct SwitchTraces<'a> {
    endpoint: &'a [SocketAddrV4],
    lookup: Lookup,
    /// The clock of each switch that answered.
    clocks: Vec<(String, Clock)>,
}

impl<'a> SwitchTraces<'a> {
    /// Starts watching with a first lookup.
    fn begin(endpoint: &'a [SocketAddrV4], lookup: Lookup) -> Result<Self, Failure> {
        let asked_ns = now().boot_ns;
        let answers: Vec<SwitchAnswer> = answer(endpoint, &AdminRequest::Lookup(lookup))?;
        let heard_ns = now().boot_ns;
        let clock = |answer: SwitchAnswer| {
            let client_trace = answer.found?.client_trace?;
            Some((answer.switch, Clock::between(asked_ns, client_trace.now_ns, heard_ns)))
        };
        Ok(Self { endpoint, lookup, clocks: answers.into_iter().filter_map(clock).collect() })
    }

    /// Makes a second lookup, whose answer has what the switches saw. Returns this and notes.
    fn end(self, begun_ns: u64) -> Result<(Vec<Step>, Vec<String>), Failure> {
        let answers: Vec<SwitchAnswer> = answer(self.endpoint, &AdminRequest::Lookup(self.lookup))?;
        let (mut steps, mut notes) = (Vec::new(), Vec::new());
        for SwitchAnswer { switch, found, .. } in answers {
            let client_trace = found.and_then(|found| found.client_trace);
            let clock = self.clocks.iter().find(|(name, _)| *name == switch).map(|(_, clock)| *clock);
            let (Some(client_trace), Some(clock)) = (client_trace, clock) else {
                notes.push(format!("{switch} does not answer: what it saw is unknown"));
                continue;
            };
            steps.extend(client_trace.seen.into_iter().map(|seen| Step {
                after_us: micros(seen.at_ns, begun_ns) - clock.ahead_ns as f64 / 1e3,
                place: switch.clone(),
                what: seen.what,
            }));
            notes.extend(client_trace.blind.map(|why| format!("{switch}: {why}; its counters are above")));
            notes.extend(clock.describe(&switch));
        }
        Ok((steps, notes))
    }
}

fn micros(at_ns: u64, begun_ns: u64) -> f64 {
    (i128::from(at_ns) - i128::from(begun_ns)) as f64 / 1e3
}

/// Asks every member to watch the client.
fn watch(partition: &PartitionStatus, nodes: &[NodeStatus], id: ClientId) -> Vec<Watched> {
    let address = |node| nodes.iter().find(|known| known.id == node).map(|known| known.address);
    let members = partition.members.iter().filter_map(|member| Some((member, address(member.node)?)));
    let watch = |name: String, address| {
        let asked_ns = now().boot_ns;
        let trace = ask_node(address, &AdminRequest::Watch(id.0));
        let clock = trace.map(|trace| Clock::between(asked_ns, trace.now_ns, now().boot_ns));
        Watched { name, address, clock }
    };
    members.map(|(member, address)| watch(member.name.clone(), address)).collect()
}

fn ask_node(address: SocketAddrV4, request: &AdminRequest) -> Option<NodeTrace> {
    let json = admin::ask(&[address], request, NODE_TIMEOUT).ok()?;
    serde_json::from_slice(&json).ok()
}

/// The events that a member saw, and a note if the member's answer is missing or incomplete.
fn collect(
    member: &Watched,
    nodes: &[NodeStatus],
    id: ClientId,
    begun_ns: u64,
) -> (Vec<Step>, Option<String>) {
    let name = &member.name;
    let trace =
        member.clock.and_then(|clock| Some((clock, ask_node(member.address, &AdminRequest::Watched(id.0))?)));
    let Some((clock, trace)) = trace else {
        return (Vec::new(), Some(format!("{name} does not answer: what it did is unknown")));
    };
    let who =
        |by| nodes.iter().find(|node| node.id == by).map_or(format!("node {by}"), |node| node.name.clone());
    let step = |event: &nicekv_runtime::control_plane::NodeEvent| Step {
        after_us: micros(event.at_ns, begun_ns) - clock.ahead_ns as f64 / 1e3,
        place: name.clone(),
        what: event.by.map_or(event.what.clone(), |by| format!("{} by {}", event.what, who(by))),
    };
    (trace.events.iter().map(step).collect(), clock.describe(name))
}

impl Clock {
    fn between(asked_ns: u64, said_ns: u64, heard_ns: u64) -> Self {
        let error_ns = heard_ns.saturating_sub(asked_ns) / 2;
        let ahead_ns = said_ns as i64 - (asked_ns + error_ns) as i64;
        let is_ours = ahead_ns.unsigned_abs() <= error_ns;
        Self { ahead_ns: if is_ours { 0 } else { ahead_ns }, error_ns }
    }

    /// A note if the clock differs from this host's.
    fn describe(self, name: &str) -> Option<String> {
        let error_us = self.error_ns as f64 / 1e3;
        (self.ahead_ns != 0).then(|| {
            format!("the clock of {name} differs: its times are accurate to {error_us:.0} us, their order is exact")
        })
    }
}

/// The entries by which each switch forwarded the request, with the number of packets that matched
/// them during it.
fn counted(before: &Explanation, after: &Explanation, is_put: bool) -> Vec<String> {
    let hits = |answer: &SwitchAnswer| {
        let found = answer.found.as_ref()?;
        let (entry, hits) = match is_put {
            true => found
                .multicast
                .as_ref()
                .map(|met| (format!("multicast_vring {}", met.entry.destination), met.hits))?,
            false => found
                .unicast
                .as_ref()
                .map(|met| (format!("unicast_vring {}", met.entry.destination), met.hits))?,
        };
        Some((entry, hits?))
    };
    let line = |answer: &SwitchAnswer| {
        let later = after.switches.iter().find(|other| other.switch == answer.switch);
        match (hits(answer), later.and_then(hits)) {
            (Some((entry, first)), Some((_, last))) => {
                format!(
                    "switch {}: {entry} matched {} packets meanwhile",
                    answer.switch,
                    last.saturating_sub(first)
                )
            }
            _ => format!("switch {}: does not report its counters", answer.switch),
        }
    };
    before.switches.iter().map(line).collect()
}

fn describe(traced: &Traced) -> Vec<String> {
    let Traced { op, key, keyspace, client, partition, epoch, switches, steps, notes } = traced;
    let mut lines = vec![format!(
        "{op} {key:?} of keyspace {keyspace} by client {client}: partition {partition}, epoch {epoch}"
    )];
    lines.extend(switches.iter().cloned());
    let row = |step: &Step| vec![format!("{:.1}", step.after_us), step.place.clone(), step.what.clone()];
    let table = Table::new("", &["us", "where", "event"], steps.iter().map(row).collect());
    lines.extend(table.with_numbers(1).text().lines().map(str::to_owned));
    lines.extend(notes.iter().cloned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_differences_within_the_error_are_ignored() {
        assert_eq!(Clock::between(1_000, 1_040, 1_100), Clock { ahead_ns: 0, error_ns: 50 });
        assert_eq!(Clock::between(1_000, 1_100, 1_100).ahead_ns, 0);
        let other = Clock::between(1_000, 901_050, 1_100);
        assert_eq!(other, Clock { ahead_ns: 900_000, error_ns: 50 });
        assert!(
            other.describe("node-1").is_some()
                && Clock { ahead_ns: 0, error_ns: 5 }.describe("node-1").is_none()
        );
        assert_eq!(Clock::between(901_000, 1_050, 901_100).ahead_ns, -900_000);
    }
}
