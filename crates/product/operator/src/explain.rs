//! `nicekv explain`: where requests for a key go, according to the installed switch tables and the
//! state of nodes, compared with what the metadata service believes.

mod differences;
#[cfg(test)]
mod tests;

use crate::admin::answer;
use crate::client::keyspace;
use crate::discovery::{self, EndpointArguments, Purpose};
use crate::failure::Failure;
use crate::output::print;
use nicekv_client::{Request, SubmitError};
use nicekv_metadata::{ClusterInfo, MemberStatus, NodeStatus, PartitionStatus, Status};
use nicekv_proto::placement::match_digest;
use nicekv_runtime::admin;
use nicekv_runtime::control_plane::{AdminRequest, NodeAnswer, SwitchAnswer};
use nicekv_switch::control::{Lookup, Met};
use nicekv_switch::{HostId, HotEntry, MemberSet, Prefix};
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Timeout for a node.
const NODE_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause before differences are checked again: an update may have been in transit.
const SETTLE_TIME: Duration = Duration::from_millis(300);

/// `nicekv explain`
#[derive(clap::Args)]
pub struct ExplainArguments {
    /// Key, at most 1024 bytes
    key: String,
    /// Keyspace of the key, by name or number [default: 0]
    #[arg(long, value_name = "NAME", default_value = "0", hide_default_value = true)]
    keyspace: String,
    /// Only show gets from this client address [default: every client network in the tables]
    #[arg(long, value_name = "ADDR")]
    from: Option<Ipv4Addr>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    endpoint: EndpointArguments,
}

/// Where the requests for a key go.
#[derive(Serialize)]
pub struct Explanation {
    key: String,
    pub keyspace: String,
    /// Digest of the key, 32 hexadecimal digits.
    digest: String,
    vnode: u16,
    by_range: bool,
    /// Addresses to which clients send gets and puts of the key.
    pub unicast: SocketAddrV4,
    pub multicast: SocketAddrV4,
    /// Term and primary, as the metadata service believes.
    term: u64,
    has_primary: bool,
    pub partition: PartitionStatus,
    /// The entries for the key, as installed in each switch.
    pub switches: Vec<SwitchAnswer>,
    /// The members by name, with the state that each reports; `None`: it did not answer.
    nodes: Vec<(String, Option<NodeAnswer>)>,
    differences: Vec<String>,
}

/// A key to explain.
pub struct Asked<'a> {
    pub endpoint: &'a [SocketAddrV4],
    pub key: &'a str,
    pub keyspace: &'a str,
}

pub fn run(arguments: &ExplainArguments) -> Result<(), Failure> {
    let key = arguments.key.as_bytes();
    Request::Get { key }.check().map_err(|error: SubmitError| Failure::environment(error))?;
    let endpoint = discovery::find(&arguments.endpoint, Purpose::Read)?;
    let asked = Asked { endpoint: &endpoint, key: &arguments.key, keyspace: &arguments.keyspace };
    let (mut told, mut nodes) = asked.explain()?;
    if !told.differences.is_empty() {
        std::thread::sleep(SETTLE_TIME);
        (told, nodes) = asked.explain()?;
    }
    let text = if arguments.json {
        serde_json::to_string(&told).map_err(Failure::environment)?
    } else {
        describe(&told, &nodes, arguments.from).join("\n")
    };
    print(format!("{text}\n").as_bytes())
}

impl Explanation {
    /// The lookup that the switches are asked to make.
    pub fn lookup(&self) -> Lookup {
        Lookup {
            unicast: self.unicast.ip().octets(),
            multicast: self.multicast.ip().octets(),
            value: u128::from_str_radix(&self.digest, 16).unwrap_or_default(),
            keyspace: self.partition.keyspace,
            watch: None,
        }
    }
}

impl Asked<'_> {
    /// The explanation, and the status of all nodes.
    pub fn explain(&self) -> Result<(Explanation, Vec<NodeStatus>), Failure> {
        let info: ClusterInfo = self.ask(AdminRequest::ClusterInfo)?;
        let known = keyspace(&info, self.keyspace)?;
        let digest = match_digest(known.order(), self.key.as_bytes());
        let vrings = known.vrings(info.port);
        let (unicast, multicast) = (vrings.unicast_address(&digest), vrings.multicast_address(&digest));
        let status: Status = self.ask(AdminRequest::Status)?;
        let holds = |partition: &&PartitionStatus| {
            let has_it = partition.range().is_some_and(|range| range.contains(digest.match_value()));
            partition.keyspace == known.id && has_it
        };
        let Some(partition) = status.partitions.iter().find(holds).cloned() else {
            let line = format!("keyspace {} has no partitions yet", known.name);
            return Err(Failure::Operation(line));
        };
        let mut told = Explanation {
            key: self.key.into(),
            keyspace: known.name.clone(),
            digest: format!("{:032x}", digest.match_value()),
            vnode: digest.vnode(),
            by_range: known.by_range,
            unicast,
            multicast,
            term: status.term,
            has_primary: known.quorum.is_none(),
            switches: Vec::new(),
            nodes: ask_nodes(&status, &partition),
            partition,
            differences: Vec::new(),
        };
        told.switches = self.ask(AdminRequest::Lookup(told.lookup()))?;
        told.differences = differences::find(&told);
        Ok((told, status.nodes))
    }

    fn ask<T: serde::de::DeserializeOwned>(&self, request: AdminRequest) -> Result<T, Failure> {
        answer(self.endpoint, &request)
    }
}

/// Asks all members in parallel, because each that is down costs a whole timeout.
fn ask_nodes(status: &Status, partition: &PartitionStatus) -> Vec<(String, Option<NodeAnswer>)> {
    std::thread::scope(|scope| {
        let asking: Vec<_> = (partition.members.iter())
            .map(|member| {
                let address =
                    status.nodes.iter().find(|node| node.id == member.node).map(|node| node.address);
                let ask = move || {
                    let json =
                        admin::ask(&[address?], &AdminRequest::Partition(partition.id), NODE_TIMEOUT).ok()?;
                    serde_json::from_slice(&json).ok()
                };
                (member.name.clone(), scope.spawn(ask))
            })
            .collect();
        asking.into_iter().map(|(name, asking)| (name, asking.join().ok().flatten())).collect()
    })
}

fn describe(told: &Explanation, nodes: &[NodeStatus], from: Option<Ipv4Addr>) -> Vec<String> {
    let Explanation { key, keyspace, digest, vnode, unicast, multicast, partition, .. } = told;
    let PartitionStatus { id, first, last, epoch, state, health, .. } = partition;
    let matched = match told.by_range {
        true => format!("match value {digest}"),
        false => format!("digest {digest}, vnode {vnode:#06x}"),
    };
    let mut lines = vec![
        format!("key {key:?} of keyspace {keyspace}: {matched}"),
        format!("gets go to {unicast}, puts to {multicast}"),
        format!("partition {id} ({first} to {last}): epoch {epoch}, {state:?}, {health:?}"),
    ];
    for (member, (_, answer)) in partition.members.iter().zip(&told.nodes) {
        lines.push(describe_member(told, member, answer.as_ref()));
    }
    lines.extend(partition.away.iter().map(|name| format!("  {name}: away")));
    for switch in &told.switches {
        lines.extend(describe_switch(switch, nodes, from));
    }
    match told.differences.as_slice() {
        [] => lines.push("metadata service, switches and nodes agree".into()),
        differences => lines.extend(differences.iter().map(|line| format!("DIFFERENT: {line}"))),
    }
    lines
}

/// A member's role as the metadata service believes, and the state that the member reports.
fn describe_member(told: &Explanation, member: &MemberStatus, answer: Option<&NodeAnswer>) -> String {
    let is_primary = told.has_primary && member.node == told.partition.primary;
    let role = if let Some(role) = told.partition.chain_role(member.node) {
        role
    } else if is_primary {
        "primary"
    } else if member.handoff {
        "handoff"
    } else {
        "member"
    };
    let leaving = if member.leaving { ", leaving" } else { "" };
    let own = match answer {
        None => "does not answer".into(),
        Some(NodeAnswer { partition: None, .. }) => "does not know the partition".into(),
        Some(NodeAnswer { partition: Some(own), .. }) => {
            let leads = if own.leads { ", leads" } else { "" };
            format!(
                "reports epoch {}, {}{leads}, log at decision {}, released up to {}, {} open operations",
                own.epoch, own.standing, own.logged, own.released, own.open_ops
            )
        }
    };
    format!("  {}: {role}, {:?}{leaving}; {own}", member.name, member.standing)
}

/// Describes to which nodes, besides the partition's members, gets of a hot key go.
fn describe_hot_entry(entry: &HotEntry, name: impl Fn(HostId) -> String) -> String {
    let HotEntry { instance, owner_turns, holders, in_switch, .. } = entry;
    let holders = holders.iter().map(|host| name(*host)).collect::<Vec<_>>().join(", ");
    let by_switch =
        if *in_switch { " answered by the switch while its copy is current, otherwise" } else { "" };
    let rest = match (in_switch, holders.is_empty()) {
        (false, true) => " counts requests, no copies".into(),
        (true, true) => format!(", gets{by_switch} as above"),
        (_, false) => format!(", gets{by_switch} round-robin: {owner_turns} as above, one each to {holders}"),
    };
    format!("  hot: entry {instance:#x}{rest}")
}

fn describe_switch(answer: &SwitchAnswer, nodes: &[NodeStatus], from: Option<Ipv4Addr>) -> Vec<String> {
    let SwitchAnswer { switch, term, generation, found } = answer;
    let Some(found) = found else { return vec![format!("switch {switch}: does not answer")] };
    let Some(generation) = generation else {
        return vec![format!("switch {switch}: no tables, drops gets and puts")];
    };
    let name = |host: HostId| {
        let node = nodes.iter().find(|node| node.id == host.0);
        node.map_or(format!("host {}", host.0), |node| node.name.clone())
    };
    let packets = |hits: Option<u64>| hits.map_or(String::new(), |hits| format!(" ({hits} packets)"));
    fn flow<E>(met: &Met<E>) -> String {
        met.native.as_ref().map_or(String::new(), |native| format!(", flow {native}"))
    }
    let entry =
        |table: &str, prefix: Prefix, to: String, hits| format!("{table} {prefix} to {to}{}", packets(hits));
    let mut lines = vec![format!("switch {switch}: generation {generation} of term {term}")];
    let division = |from: Ipv4Addr| {
        let holds = found.divisions.iter().filter(|met| met.entry.source.contains(from.octets()));
        holds.max_by_key(|met| met.entry.source.length)
    };
    let is_claimed = from.is_some_and(|from| division(from).is_some());
    let to_host = |host| if is_claimed { "its divisions".into() } else { name(host) };
    let to_all = |members: &MemberSet| {
        members.as_slice().iter().map(|host| name(*host)).collect::<Vec<_>>().join(", ")
    };
    let record = found.record.as_ref();
    lines.push(match (found.unicast.as_ref(), record) {
        (_, Some(met)) => format!("  get: record to {}{}", to_host(met.entry.host), packets(met.hits)),
        (None, None) => "  get: no entry, dropped".into(),
        (Some(met), None) => {
            let to = to_host(met.entry.host);
            format!("  get: {}{}", entry("unicast_vring", met.entry.destination, to, met.hits), flow(met))
        }
    });
    let shown = found.divisions.iter().filter(|met| from.is_none_or(|from| division(from) == Some(met)));
    lines.extend(shown.map(|met| {
        let to = name(met.entry.host);
        format!("       from {}{}", entry("division", met.entry.source, to, met.hits), flow(met))
    }));
    lines.push(match (found.multicast.as_ref(), record) {
        (_, Some(met)) => format!("  put: record to {}{}", to_all(&met.entry.members), packets(met.hits)),
        (None, None) => "  put: no entry, dropped".into(),
        (Some(met), None) => {
            let to = to_all(&met.entry.members);
            format!("  put: {}{}", entry("multicast_vring", met.entry.destination, to, met.hits), flow(met))
        }
    });
    lines.extend(found.hot.as_ref().map(|entry| describe_hot_entry(entry, name)));
    lines
}
