//! `nicekv trace`: one put or get of this command's own client, hop by hop, with times.
//!
//! ```text
//!   members, switches: watch this client ─▶ what do the switches count? ─▶ the op ─▶ what have members and switches seen, and counted?
//! ```
//!
//! What a switch can see of a datagram depends on where it is: one in user space sees it pass, one at tc sees it arrive, one at XDP nothing, and
//! says so; what its entries have counted is known of all.
//!
//! Clocks of other hosts are compared by asking what time it is: half the way there and back is the error. Where that may explain the whole
//! difference, the clocks are taken for one, as they are on one machine.

use crate::admin::answer;
use crate::client::{TargetArguments, client_of, failed};
use crate::discovery::{self, Purpose};
use crate::explain::{Asked, Explanation};
use crate::failure::Failure;
use crate::output::print;
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

/// For the answer of a node.
const NODE_TIMEOUT: Duration = Duration::from_secs(1);
/// What follows the answer, such as decisions at the other members, comes within this.
const SETTLE_TIME: Duration = Duration::from_millis(100);

/// `nicekv trace`
#[derive(clap::Subcommand)]
pub enum TraceCommand {
    /// Store a value, and show how
    Put(TracePutArguments),
    /// Read a value, and show how
    Get(TraceGetArguments),
}

/// `nicekv trace put`
#[derive(clap::Args)]
pub struct TracePutArguments {
    /// At most 1024 bytes
    key: String,
    /// At most 1024 bytes, and 1280 with the key
    value: String,
    /// For programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: TargetArguments,
}

/// `nicekv trace get`
#[derive(clap::Args)]
pub struct TraceGetArguments {
    /// At most 1024 bytes
    key: String,
    /// For programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: TargetArguments,
}

/// A node's clock, as this host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Clock {
    /// Its time less ours; 0 if the error may be all of it.
    ahead_ns: i64,
    error_ns: u64,
}

/// One line of what happened.
#[derive(Debug, PartialEq, Serialize)]
struct Step {
    /// Since the client began.
    after_us: f64,
    place: String,
    what: String,
}

/// A request's way.
#[derive(Serialize)]
struct Traced {
    op: &'static str,
    key: String,
    keyspace: String,
    client: String,
    partition: u32,
    epoch: u32,
    /// What the entries of each switch counted meanwhile, those of others included.
    switches: Vec<String>,
    /// In the order of their times.
    steps: Vec<Step>,
    /// Members that did not answer, and clocks that are not ours.
    notes: Vec<String>,
}

/// A member of the partition that is watched.
struct Watched {
    name: String,
    address: SocketAddrV4,
    /// `None`: it does not answer.
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
    let sights = Sights::begin(&endpoint, Lookup { watch: Some(id.0), ..before.lookup() })?;
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
    let (seen_by_switches, mut notes) = sights.end(begun_ns)?;
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

/// Switches that watch the client.
struct Sights<'a> {
    endpoint: &'a [SocketAddrV4],
    lookup: Lookup,
    /// Of each that answers, by its name.
    clocks: Vec<(String, Clock)>,
}

impl<'a> Sights<'a> {
    /// Asked for the first time, they begin.
    fn begin(endpoint: &'a [SocketAddrV4], lookup: Lookup) -> Result<Self, Failure> {
        let asked_ns = now().boot_ns;
        let answers: Vec<SwitchAnswer> = answer(endpoint, &AdminRequest::Lookup(lookup))?;
        let heard_ns = now().boot_ns;
        let clock = |answer: SwitchAnswer| {
            let sight = answer.found?.sight?;
            Some((answer.switch, Clock::between(asked_ns, sight.now_ns, heard_ns)))
        };
        Ok(Self { endpoint, lookup, clocks: answers.into_iter().filter_map(clock).collect() })
    }

    /// Asked again, they tell; and what is to be said of them.
    fn end(self, begun_ns: u64) -> Result<(Vec<Step>, Vec<String>), Failure> {
        let answers: Vec<SwitchAnswer> = answer(self.endpoint, &AdminRequest::Lookup(self.lookup))?;
        let (mut steps, mut notes) = (Vec::new(), Vec::new());
        for SwitchAnswer { switch, found, .. } in answers {
            let sight = found.and_then(|found| found.sight);
            let clock = self.clocks.iter().find(|(name, _)| *name == switch).map(|(_, clock)| *clock);
            let (Some(sight), Some(clock)) = (sight, clock) else {
                notes.push(format!("{switch} does not answer: what it saw is not known"));
                continue;
            };
            steps.extend(sight.seen.into_iter().map(|seen| Step {
                after_us: micros(seen.at_ns, begun_ns) - clock.ahead_ns as f64 / 1e3,
                place: switch.clone(),
                what: seen.what,
            }));
            notes.extend(sight.blind.map(|why| format!("{switch}: {why}; what it has counted is above")));
            notes.extend(clock.describe(&switch));
        }
        Ok((steps, notes))
    }
}

fn micros(at_ns: u64, begun_ns: u64) -> f64 {
    (i128::from(at_ns) - i128::from(begun_ns)) as f64 / 1e3
}

/// Every member watches the client from now on.
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

/// What a member has seen, and what is to be said of it.
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
        return (Vec::new(), Some(format!("{name} does not answer: what it did is not known")));
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

    /// If it is another one.
    fn describe(self, name: &str) -> Option<String> {
        let error_us = self.error_ns as f64 / 1e3;
        (self.ahead_ns != 0).then(|| {
            format!("the clock of {name} is another one: its times are right to {error_us:.0} us, in their order exactly")
        })
    }
}

/// By which entries each switch sent it, and how many packets these have counted meanwhile.
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
                    "switch {}: {entry} has matched {} packets meanwhile",
                    answer.switch,
                    last.saturating_sub(first)
                )
            }
            _ => format!("switch {}: does not say what it has matched", answer.switch),
        }
    };
    before.switches.iter().map(line).collect()
}

fn describe(traced: &Traced) -> Vec<String> {
    let Traced { op, key, keyspace, client, partition, epoch, switches, steps, notes } = traced;
    let width = steps.iter().map(|step| step.place.len()).max().unwrap_or_default();
    let mut lines = vec![format!(
        "{op} {key:?} of keyspace {keyspace} by client {client}: partition {partition}, epoch {epoch}"
    )];
    lines.extend(switches.iter().cloned());
    lines.push("         us".into());
    lines.extend(
        steps.iter().map(|step| format!("{:11.1}  {:width$}  {}", step.after_us, step.place, step.what)),
    );
    lines.extend(notes.iter().cloned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_that_the_way_explains_is_none() {
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
