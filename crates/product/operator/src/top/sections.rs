//! What is shown, as lines and tables of text.

use super::hot_keys;
use crate::problems::problems;
use nicekv_metadata::{Health, NodeWish, PartitionStatus, Status};
use std::time::Duration;

/// Partitions that are not whole and are shown one by one.
const PARTITIONS_MAX: usize = 12;

/// A table with its title.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) head: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

/// Everything that is shown at one time.
#[derive(Debug)]
pub(super) struct Sections {
    pub(super) summary: String,
    pub(super) problems: Vec<String>,
    pub(super) tables: Vec<Section>,
}

impl Sections {
    /// `before`: the last look, and how long ago it was.
    pub(super) fn of(status: &Status, before: Option<(&Status, Duration)>) -> Self {
        let Status { term, ready, usage, moves, .. } = status;
        let ready = if *ready { "ready" } else { "NOT READY" };
        let summary = format!(
            "{ready}, term {term}: {} gets/s, {} updates/s, {} keys, {moves} replicas moving",
            usage.gets_per_second, usage.updates_per_second, usage.keys
        );
        let mut tables = vec![keyspaces(status), nodes(status), switch_tables(status, before)];
        tables.extend(status.hot.as_ref().map(hot_keys::switches));
        tables.extend(status.hot.as_ref().and_then(hot_keys::keys));
        tables.extend(partitions(status));
        Self { summary, problems: problems(status), tables }
    }

    /// For pipes.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n", self.summary);
        for problem in &self.problems {
            text += &format!("WRONG: {problem}\n");
        }
        for table in &self.tables {
            text += &format!("\n{}\n", table.title);
            let head: Vec<String> = table.head.iter().map(|cell| (*cell).to_owned()).collect();
            let rows: Vec<_> = std::iter::once(&head).chain(&table.rows).collect();
            let widths = table.widths();
            for row in rows {
                let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
                let line = cells.collect::<Vec<_>>().join("  ");
                text += &format!("  {}\n", line.trim_end());
            }
        }
        text
    }
}

impl Section {
    /// Of each column, the longest cell.
    pub(super) fn widths(&self) -> Vec<usize> {
        let of = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([self.head[column].len()]).max().unwrap_or(0)
        };
        (0..self.head.len()).map(of).collect()
    }
}

fn keyspaces(status: &Status) -> Section {
    let row = |keyspace: &nicekv_metadata::KeyspaceStatus| {
        let (health, usage) = (&keyspace.health, &keyspace.usage);
        let ill = health.reduced + health.waiting + health.unavailable + health.lost;
        vec![
            keyspace.name.clone(),
            keyspace.replication.clone(),
            keyspace.replicas.to_string(),
            format!("{} of {}", health.whole, keyspace.partitions),
            health.covered.to_string(),
            ill.to_string(),
            usage.keys.to_string(),
            usage.bytes.to_string(),
            usage.gets_per_second.to_string(),
            usage.updates_per_second.to_string(),
        ]
    };
    let head =
        vec!["name", "replication", "R", "whole", "covered", "worse", "keys", "bytes", "gets/s", "updates/s"];
    Section { title: "keyspaces".into(), head, rows: status.keyspaces.iter().map(row).collect() }
}

fn nodes(status: &Status) -> Section {
    let row = |node: &nicekv_metadata::NodeStatus| {
        let leads = status.partitions.iter().filter(|partition| partition.primary == node.id).count();
        let wish = match node.wish {
            NodeWish::Holds => "",
            NodeWish::Drained => "drain",
            NodeWish::Removed => "remove",
        };
        vec![
            node.name.clone(),
            node.address.to_string(),
            format!("{:?}", node.state),
            wish.into(),
            leads.to_string(),
            node.members.to_string(),
            node.share.to_string(),
            node.missing.to_string(),
            format!("{:?}", node.disk),
        ]
    };
    let head =
        vec!["name", "address", "state", "wish", "primary of", "member of", "is to hold", "missing", "disk"];
    Section { title: "nodes".into(), head, rows: status.nodes.iter().map(row).collect() }
}

fn switch_tables(status: &Status, before: Option<(&Status, Duration)>) -> Section {
    let row = |table: &nicekv_switch::TableStatus| {
        let earlier = before.and_then(|(before, elapsed)| {
            let earlier = before.tables.iter().find(|earlier| earlier.name == table.name)?;
            // A switch that has begun anew has counted nothing.
            let more = table.hits.saturating_sub(earlier.hits);
            Some(format!("{:.0}", more as f64 / elapsed.as_secs_f64().max(1e-3)))
        });
        vec![
            table.name.to_string(),
            format!("{} of {}", table.entries, table.capacity),
            format!("{} %", table.entries * 100 / table.capacity.max(1)),
            table.hits.to_string(),
            earlier.unwrap_or_default(),
        ]
    };
    let connected = status.switches.iter().filter(|switch| switch.connected && switch.current).count();
    let title = format!("switch tables ({connected} of {} switches have the newest)", status.switches.len());
    let head = vec!["table", "entries", "full", "packets", "packets/s"];
    Section { title, head, rows: status.tables.iter().map(row).collect() }
}

/// Those that are not whole, the worst first.
fn partitions(status: &Status) -> Option<Section> {
    let mut ill: Vec<_> =
        status.partitions.iter().filter(|partition| partition.health != Health::Whole).collect();
    ill.sort_by_key(|partition| std::cmp::Reverse(partition.health));
    let row = |partition: &&PartitionStatus| {
        let members = partition.members.iter().map(|member| format!("{}={:?}", member.name, member.standing));
        vec![
            partition.id.to_string(),
            partition.keyspace.to_string(),
            partition.epoch.to_string(),
            format!("{:?}", partition.health),
            members.collect::<Vec<_>>().join(" "),
            partition.away.join(" "),
        ]
    };
    let title = format!("partitions that are not whole: {} of {}", ill.len(), status.partitions.len());
    let head = vec!["number", "keyspace", "epoch", "health", "members", "away"];
    let rows = ill.iter().take(PARTITIONS_MAX).map(row).collect();
    (!ill.is_empty()).then_some(Section { title, head, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_is_in_them_and_the_worst_comes_first() {
        let table = Section {
            title: "nodes".into(),
            head: vec!["name", "state"],
            rows: vec![vec!["a".into(), "Suspected".into()], vec!["longer".into(), "Live".into()]],
        };
        assert_eq!(table.widths(), [6, 9]);
        let problems = vec!["the disk".to_owned()];
        let shown = Sections { summary: "ready".into(), problems, tables: vec![table] };
        let text = "ready\nWRONG: the disk\n\nnodes\n  name    state\n  a       Suspected\n  longer  Live\n";
        assert_eq!(shown.text(), text);
    }
}
