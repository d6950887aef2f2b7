//! The tables of `nicekv status` and `nicekv top`: keyspaces, nodes, switch tables, hot keys, partitions.

use crate::problems::problems;
use crate::table::Table;
use nicekv_fields::{hot, keyspace, node, table};
use nicekv_metadata::{Health, HotStatus, PartitionStatus, Status};
use std::time::Duration;

/// Maximum number of partitions with missing copies that are listed one by one.
const PARTITIONS_MAX: usize = 12;
/// Maximum number of hot keys that are listed for each switch.
const HOT_KEYS_MAX: usize = 8;

/// The content of `nicekv top` at one time.
#[derive(Debug)]
pub(crate) struct Screen {
    pub(crate) summary: String,
    pub(crate) problems: Vec<String>,
    pub(crate) tables: Vec<Table>,
}

impl Screen {
    /// `before`: the previous status, and how long ago it was.
    pub(crate) fn of(status: &Status, before: Option<(&Status, Duration)>) -> Self {
        let Status { term, ready, usage, moves, .. } = status;
        let ready = if *ready { "ready" } else { "NOT READY" };
        let summary = format!(
            "{ready}, term {term}: {} gets/s, {} updates/s, {} keys, {moves} replicas moving",
            usage.gets_per_second, usage.updates_per_second, usage.keys
        );
        let mut tables = vec![keyspaces(status), nodes(status), switch_tables(status, before)];
        tables.extend(status.hot.iter().flat_map(hot_keys));
        tables.extend(degraded_partitions(status));
        Self { summary, problems: problems(status), tables }
    }

    /// As plain text, for pipes.
    pub(crate) fn text(&self) -> String {
        let problems = self.problems.iter().map(|problem| format!("WRONG: {problem}\n")).collect::<String>();
        let tables = self.tables.iter().map(Table::section).collect::<String>();
        format!("{}\n{problems}{tables}", self.summary)
    }
}

pub(crate) fn keyspaces(status: &Status) -> Table {
    Table::of("keyspaces", &keyspace::COLUMNS, &status.keyspaces)
}

pub(crate) fn nodes(status: &Status) -> Table {
    let leads = |id| status.partitions.iter().filter(|partition| partition.primary == id).count();
    let primaries: Vec<_> = status.nodes.iter().map(|node| leads(node.id).to_string()).collect();
    Table::of("nodes", &node::COLUMNS, &status.nodes).with("primary of", primaries)
}

/// `before`: for rates, the previous status and how long ago it was.
pub(crate) fn switch_tables(status: &Status, before: Option<(&Status, Duration)>) -> Table {
    let connected = status.switches.iter().filter(|switch| switch.connected && switch.current).count();
    let title = format!("switch tables ({connected} of {} switches are up to date)", status.switches.len());
    let shown = Table::of(title, &table::COLUMNS, &status.tables);
    let Some((before, elapsed)) = before else { return shown };
    let rate = |table: &nicekv_switch::TableStatus| {
        let earlier = before.tables.iter().find(|earlier| earlier.name == table.name)?;
        // If a switch restarts, its counters begin at zero.
        let hits = table.hits.saturating_sub(earlier.hits);
        Some(format!("{:.0}", hits as f64 / elapsed.as_secs_f64().max(1e-3)))
    };
    shown.with("packets/s", status.tables.iter().map(|table| rate(table).unwrap_or_default()))
}

/// Tables of hot keys: a summary by switch, and the most requested keys.
pub(crate) fn hot_keys(status: &HotStatus) -> Vec<Table> {
    let title =
        status.off.as_ref().map_or("hot keys".into(), |why| format!("hot keys are not copied: {why}"));
    let mut tables = vec![Table::of(title, &hot::COLUMNS, &status.switches)];
    let keys = status.switches.iter().flat_map(|switch| switch.keys.iter().take(HOT_KEYS_MAX));
    let keys = Table::of("most requested keys", &hot::KEY_COLUMNS, keys);
    tables.extend((!keys.rows.is_empty()).then_some(keys));
    tables
}

/// The partitions that lack copies, worst first.
fn degraded_partitions(status: &Status) -> Option<Table> {
    let mut degraded: Vec<_> =
        status.partitions.iter().filter(|partition| partition.health != Health::Whole).collect();
    degraded.sort_by_key(|partition| std::cmp::Reverse(partition.health));
    let title = format!("degraded partitions: {} of {}", degraded.len(), status.partitions.len());
    (!degraded.is_empty()).then(|| partitions(title, degraded.into_iter().take(PARTITIONS_MAX)))
}

pub(crate) fn partitions<'a>(
    title: impl Into<String>,
    partitions: impl IntoIterator<Item = &'a PartitionStatus>,
) -> Table {
    let row = |partition: &PartitionStatus| {
        let members = partition.members.iter().map(|member| {
            let role = match partition.chain_role(member.node) {
                Some(role) => format!(" {role}"),
                None if member.node == partition.primary => " primary".into(),
                None if member.handoff => " handoff".into(),
                None if member.leaving => " leaving".into(),
                None => String::new(),
            };
            format!("{} ({:?}{role})", member.name, member.standing).to_lowercase()
        });
        let away = partition.away.iter().map(|name| format!("{name} (away)"));
        vec![
            partition.id.to_string(),
            partition.keyspace.to_string(),
            partition.epoch.to_string(),
            format!("{:?}", partition.state).to_lowercase(),
            format!("{:?}", partition.health).to_lowercase(),
            members.chain(away).collect::<Vec<_>>().join(", "),
        ]
    };
    let head = ["partition", "keyspace", "epoch", "state", "health", "members"];
    Table::new(title, &head, partitions.into_iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_summary_problems_and_tables() {
        let rows = vec![vec!["a".into(), "suspected".into()], vec!["longer".into(), "live".into()]];
        let table = Table::new("nodes", &["name", "state"], rows);
        let problems = vec!["the disk".to_owned()];
        let screen = Screen { summary: "ready".into(), problems, tables: vec![table] };
        let text = "ready\nWRONG: the disk\n\nnodes\n  name    state\n  a       suspected\n  longer  live\n";
        assert_eq!(screen.text(), text);
    }

    #[test]
    fn hot_keys_show_who_holds_copies_and_who_answers() {
        let text =
            |tables: Vec<Table>| tables.iter().map(|table| table.rows.concat().join(" ")).collect::<Vec<_>>();
        let shown = text(hot_keys(&crate::hot_keys::tests::status()));
        assert_eq!(shown, ["0 7 1 2 1 50 1000 95 % 60 % 4 % 8", "1 0a 900 600 node-1 yes node-4 node-5"]);
        assert_eq!(hot_keys(&HotStatus::default()).len(), 1);
    }
}
