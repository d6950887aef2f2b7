//! Preparing a restore: all problems are reported at once, and missing keyspaces are created.

use super::RestoreArguments;
use super::format::{Header, StoredKeyspace};
use crate::admin::{answer, ask_for};
use crate::failure::Failure;
use crate::keyspaces;
use nicekv_metadata::{ClusterInfo, KeyspaceChange, KeyspaceInfo, KeyspacePlan, Status};
use nicekv_runtime::control_plane::AdminRequest;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;

/// Settings that are only valid with another setting: if the first changes, the second is dropped.
const DEPENDENT: [(&str, &str); 3] =
    [("replication", "write-set"), ("balancing", "partition-keys"), ("balancing", "partition-bytes")];

/// Creates the missing keyspaces and waits until they are ready. If there are problems, reports all
/// of them and changes nothing.
pub(super) fn prepare(
    header: &Header,
    endpoint: &[SocketAddrV4],
    arguments: &RestoreArguments,
) -> Result<(), Failure> {
    let info: ClusterInfo = answer(endpoint, &AdminRequest::ClusterInfo)?;
    let status: Status = answer(endpoint, &AdminRequest::Status)?;
    let changes = changes(&arguments.keyspaces)?;
    let mut problems = Vec::new();
    let names = header.keyspaces.iter().map(|keyspace| keyspace.name.as_str());
    let unknown = changes.keys().filter(|name| !names.clone().any(|known| known == **name));
    problems.extend(unknown.map(|name| format!("--keyspace {name}: the backup has no such keyspace")));
    let mut texts = Vec::new();
    for keyspace in &header.keyspaces {
        let name = keyspace.name.as_str();
        let change = changes.get(name).copied();
        match info.keyspaces.iter().find(|known| known.name == name) {
            Some(known) => {
                problems.extend(of_existing(known, keyspace, header, (&status, arguments.merge)));
                problems.extend(
                    change.map(|_| format!("--keyspace {name}: it already exists and is not changed")),
                );
            }
            None => {
                let text = format!("{name}={}", changed(&keyspace.settings, change.unwrap_or_default()));
                let create = KeyspaceChange::Create { text };
                match ask_for::<KeyspacePlan>(endpoint, &AdminRequest::PlanKeyspace(create.clone())) {
                    Ok(_) => texts.push(create),
                    Err(Failure::Environment(why)) => {
                        problems.push(format!("{why}; --keyspace {name}=SPEC changes its settings"));
                    }
                    Err(other) => return Err(other),
                }
            }
        }
    }
    match &problems[..] {
        [] => texts.iter().try_for_each(|create| keyspaces::create_and_wait(endpoint, create)),
        [only] => Err(Failure::Environment(format!("nothing was restored: {only}"))),
        several => Err(Failure::Environment(format!(
            "nothing was restored; {} problems: {}",
            several.len(),
            several.join(" | ")
        ))),
    }
}

/// The changed settings of each keyspace, from the options.
fn changes(options: &[String]) -> Result<BTreeMap<&str, &str>, Failure> {
    let mut changes = BTreeMap::new();
    for option in options {
        let Some((name, settings)) = option.split_once('=') else {
            let line = format!("--keyspace {option}: must be NAME=SPEC, such as {option}=replicas=2");
            return Err(Failure::Environment(line));
        };
        if changes.insert(name, settings).is_some() {
            return Err(Failure::Environment(format!("--keyspace {name} is given twice")));
        }
    }
    Ok(changes)
}

/// The name of a setting; some settings may be given by their value alone.
fn setting(text: &str) -> &str {
    match text {
        "multicast" | "chain" | "quorum" => "replication",
        "hash" | "range" => "partitioning",
        text => text.split_once('=').map_or(text, |(name, _)| name),
    }
}

/// The settings of a keyspace, with those of `change` replaced.
fn changed(settings: &str, change: &str) -> String {
    let new: Vec<_> = change.split(',').filter(|text| !text.is_empty()).collect();
    let is_new = |name: &str| new.iter().any(|text| setting(text) == name);
    let stays = |text: &&str| {
        let name = setting(text);
        !is_new(name) && !DEPENDENT.iter().any(|(on, dependent)| *dependent == name && is_new(on))
    };
    settings.split(',').filter(stays).chain(new.iter().copied()).collect::<Vec<_>>().join(",")
}

/// Why a backup cannot be restored into this existing keyspace; `None` if it can.
fn of_existing(
    known: &KeyspaceInfo,
    stored: &StoredKeyspace,
    header: &Header,
    (status, merge): (&Status, bool),
) -> Vec<String> {
    let name = &known.name;
    let found = status.keyspaces.iter().find(|keyspace| keyspace.name == *name);
    let keys = found.map_or(0, |keyspace| keyspace.usage.keys);
    let full = (keys > 0 && !merge)
        .then(|| format!("keyspace {name} has {keys} keys: restore into a new cluster, or use --merge"));
    let kind = match (known.chunks.is_some(), header.objects.contains(&stored.id)) {
        (true, false) => {
            Some(format!("keyspace {name} holds objects in this cluster but values in the backup"))
        }
        (false, true) => Some(format!(
            "keyspace {name} holds objects in the backup but values in this cluster: create it with --chunks"
        )),
        _ => None,
    };
    full.into_iter().chain(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_settings_replace_old_ones_and_those_that_depend_on_them() {
        let quorum = "replication=quorum,write-set=2,replicas=3,partitioning=hash,partitions=8";
        assert_eq!(changed(quorum, ""), quorum);
        let fewer = "replication=quorum,write-set=2,partitioning=hash,partitions=8,replicas=2";
        assert_eq!(changed(quorum, "replicas=2"), fewer);
        assert_eq!(changed(quorum, "chain,range"), "replicas=3,partitions=8,chain,range");
        let migrating = "replication=multicast,balancing=migrate,partition-keys=9,partition-bytes=7";
        assert_eq!(changed(migrating, "balancing=none"), "replication=multicast,balancing=none");
    }
}
