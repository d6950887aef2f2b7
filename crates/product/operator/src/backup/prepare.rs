//! Before anything is restored: what would go wrong is named, all of it at once, and the keyspaces that are missing are created.

use super::RestoreArguments;
use super::format::{Header, StoredKeyspace};
use crate::admin::{answer, ask_for};
use crate::failure::Failure;
use crate::keyspaces;
use nicekv_metadata::{ClusterInfo, KeyspaceChange, KeyspaceInfo, KeyspacePlan, Status};
use nicekv_runtime::control_plane::AdminRequest;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;

/// Settings that make sense only with the value of another one.
const DEPENDENT: [(&str, &str); 3] =
    [("replication", "write-set"), ("balancing", "partition-keys"), ("balancing", "partition-bytes")];

/// Creates the keyspaces that are missing, and waits for them. Refused, before anything is changed, with all that is wrong.
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
    problems
        .extend(unknown.map(|name| format!("--keyspace {name}: the backup has no keyspace of this name")));
    let mut texts = Vec::new();
    for keyspace in &header.keyspaces {
        let name = keyspace.name.as_str();
        let change = changes.get(name).copied();
        match info.keyspaces.iter().find(|known| known.name == name) {
            Some(known) => {
                problems.extend(of_existing(known, keyspace, header, (&status, arguments.merge)));
                problems.extend(
                    change.map(|_| format!("--keyspace {name}: it exists already, and stays as it is")),
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
            "nothing was restored, there are {} problems: {}",
            several.len(),
            several.join(" | ")
        ))),
    }
}

/// By the names of keyspaces, their other settings.
fn changes(options: &[String]) -> Result<BTreeMap<&str, &str>, Failure> {
    let mut changes = BTreeMap::new();
    for option in options {
        let Some((name, settings)) = option.split_once('=') else {
            let line = format!("--keyspace {option}: say NAME=SPEC, such as {option}=replicas=2");
            return Err(Failure::Environment(line));
        };
        if changes.insert(name, settings).is_some() {
            return Err(Failure::Environment(format!("--keyspace {name} is said twice")));
        }
    }
    Ok(changes)
}

/// The name of a setting; of some the value is enough.
fn setting(text: &str) -> &str {
    match text {
        "multicast" | "chain" | "quorum" => "replication",
        "hash" | "range" => "partitioning",
        text => text.split_once('=').map_or(text, |(name, _)| name),
    }
}

/// Settings with those of `change` in place of what they had.
fn changed(settings: &str, change: &str) -> String {
    let new: Vec<_> = change.split(',').filter(|text| !text.is_empty()).collect();
    let is_new = |name: &str| new.iter().any(|text| setting(text) == name);
    let stays = |text: &&str| {
        let name = setting(text);
        !is_new(name) && !DEPENDENT.iter().any(|(on, dependent)| *dependent == name && is_new(on))
    };
    settings.split(',').filter(stays).chain(new.iter().copied()).collect::<Vec<_>>().join(",")
}

/// Why a keyspace cannot take what the backup has of it.
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
        .then(|| format!("keyspace {name} holds {keys} keys: restore into a new cluster, or say --merge"));
    let kind = match (known.chunks.is_some(), header.objects.contains(&stored.id)) {
        (true, false) => Some(format!(
            "keyspace {name} has names of objects here, and the backup has no chunks of it: it is of another keyspace"
        )),
        (false, true) => Some(format!(
            "the backup has objects of keyspace {name}, which has none here: make it with --chunks"
        )),
        _ => None,
    };
    full.into_iter().chain(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_keyspace_replaces_its_settings_and_what_depends_on_them() {
        let quorum = "replication=quorum,write-set=2,replicas=3,partitioning=hash,partitions=8";
        assert_eq!(changed(quorum, ""), quorum);
        let fewer = "replication=quorum,write-set=2,partitioning=hash,partitions=8,replicas=2";
        assert_eq!(changed(quorum, "replicas=2"), fewer);
        assert_eq!(changed(quorum, "chain,range"), "replicas=3,partitions=8,chain,range");
        let migrating = "replication=multicast,balancing=migrate,partition-keys=9,partition-bytes=7";
        assert_eq!(changed(migrating, "balancing=none"), "replication=multicast,balancing=none");
    }
}
