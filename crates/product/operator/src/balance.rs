//! `nicekv partition balance`: balancing by migration.

use crate::admin::{ListArguments, answer};
use crate::discovery::{self, Purpose};
use crate::failure::Failure;
use crate::output::print;
use nicekv_metadata::{HotKeyStatus, MigrationStatus, Status};
use nicekv_runtime::control_plane::AdminRequest;

pub(crate) fn show(arguments: &ListArguments) -> Result<(), Failure> {
    let endpoint = discovery::find(&arguments.endpoint, Purpose::Read)?;
    let Status { migrations, .. } = answer(&endpoint, &AdminRequest::Status)?;
    let mut text = match arguments.json {
        true => serde_json::to_string(&migrations).map_err(Failure::environment)?,
        false if migrations.is_empty() => "no keyspace has balancing=migrate".into(),
        false => {
            let lines = migrations.iter().flat_map(|told| {
                let done = told.events.iter().map(|(_, what)| format!("done: {what}"));
                describe_migration(told).chain(done).collect::<Vec<_>>()
            });
            lines.collect::<Vec<_>>().join("\n")
        }
    };
    text.push('\n');
    print(text.as_bytes())
}

/// Lines about migration: the state of balancing, the next step, and keys so hot that moving
/// partitions cannot help.
pub(crate) fn describe_migration(told: &MigrationStatus) -> impl Iterator<Item = String> {
    let MigrationStatus { name, hottest, hot_keys, waits_for, next, events, .. } = told;
    let hottest = match hottest {
        Some((node, percent)) => format!("most loaded is {node} with {percent} % of the mean"),
        None => "no load data yet".into(),
    };
    let waits_for = waits_for.as_ref().map_or_else(String::new, |what| format!("; waits for {what}"));
    let last = events.last().map(|(_, what)| what).map_or_else(String::new, |what| format!("; last: {what}"));
    let next = next.iter().map(|what| format!("balancing {name}: next step by current counts: {what}"));
    let keys = hot_keys.iter().map(|HotKeyStatus { partition, value, percent }| {
        format!("balancing {name}: match value {value} of partition {partition} alone gets {percent} % of the mean load; moving cannot help")
    });
    let first = format!("balancing {name}: {hottest}{waits_for}{last}");
    [first].into_iter().chain(next).chain(keys).collect::<Vec<_>>().into_iter()
}
