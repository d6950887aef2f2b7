//! `nicekv plan`: how many nodes and partitions fit into a switch (NICE §4.6). Needs no cluster.

use crate::failure::Failure;
use crate::output::print;
use nicekv_metadata::{Carried, Demand, MANAGED_PARTITIONS_MAX, NODES_MAX, SwitchCapacity};
use nicekv_proto::limits::MEMBERS_MAX;
use serde_json::json;

/// `nicekv plan …`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct PlanArguments {
    /// Entries of all tables together, for a switch whose tables share memory; other limits then
    /// apply only if given
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    entries: Option<usize>,
    /// Entries for the unicast ring [default: as in this release's switch]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    unicast_entries: Option<usize>,
    /// Entries for client address divisions
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    division_entries: Option<usize>,
    /// Entries for the multicast ring
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    multicast_entries: Option<usize>,
    /// Multicast groups
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    groups: Option<usize>,
    /// Hosts
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    hosts: Option<usize>,
    /// Copies of each value (R)
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = replicas)]
    replicas: usize,
    /// Partitions per node; about eight spread load well, the paper uses one
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = at_least_one)]
    partitions_per_node: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=1 << 30).contains(number));
    number.ok_or_else(|| format!("must be a number from 1 to {}", 1 << 30))
}

fn replicas(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MEMBERS_MAX).contains(number));
    number.ok_or_else(|| format!("must be a number from 1 to {MEMBERS_MAX}"))
}

pub fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    let plans = [false, true].map(|is_balanced| (is_balanced, arguments.carried(is_balanced)));
    let text = match arguments.json {
        true => {
            let plan =
                |(balanced, carried): (bool, Carried)| json!({"balanced": balanced, "carried": carried});
            format!("{}\n", json!({"replicas": arguments.replicas, "plans": plans.map(plan)}))
        }
        false => describe(arguments.replicas, &plans),
    };
    print(text.as_bytes())
}

impl PlanArguments {
    fn capacity(&self) -> SwitchCapacity {
        let ours = match self.entries {
            Some(_) => SwitchCapacity::default(),
            None => SwitchCapacity::OURS,
        };
        SwitchCapacity {
            shared: self.entries,
            unicast: self.unicast_entries.or(ours.unicast),
            division: self.division_entries.or(ours.division),
            multicast: self.multicast_entries.or(ours.multicast),
            groups: self.groups.or(ours.groups),
            hosts: self.hosts.or(ours.hosts),
        }
    }

    fn carried(&self, is_balanced: bool) -> Carried {
        let Self { replicas, partitions_per_node, .. } = *self;
        Demand { replicas, partitions_per_node, is_balanced }.carried(&self.capacity())
    }
}

fn describe(replicas: usize, plans: &[(bool, Carried)]) -> String {
    let mut text = format!("With {replicas} replicas, a switch with these tables supports\n");
    for (is_balanced, carried) in plans {
        let Carried { entries_per_partition, partitions, nodes, limit } = carried;
        let how = if *is_balanced { "gets balanced (R + 1 entries)" } else { "primaries answer all gets" };
        text += &format!(
            "  {how:30} {nodes:>8} nodes, {partitions:>8} partitions of {entries_per_partition} entries; limited by {limit}\n"
        );
    }
    let (_, most) = plans.iter().max_by_key(|(_, carried)| carried.partitions).expect("there are two");
    if most.nodes > NODES_MAX || most.partitions > MANAGED_PARTITIONS_MAX {
        text += &format!(
            "  this release manages up to {NODES_MAX} nodes and {MANAGED_PARTITIONS_MAX} partitions\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        plan: PlanArguments,
    }

    fn plan(line: &str) -> PlanArguments {
        Line::try_parse_from(["plan"].into_iter().chain(line.split_whitespace())).unwrap().plan
    }

    #[test]
    fn switch_of_the_papers_size_matches_the_paper() {
        let plan = plan("--entries 131072 --replicas 3 --partitions-per-node 1");
        let [alone, balanced] = [false, true].map(|is_balanced| plan.carried(is_balanced));
        assert_eq!((alone.nodes, balanced.nodes), (65_536, 32_768));
        let text = describe(3, &[(false, alone), (true, balanced)]);
        assert!(text.contains("65536 nodes") && text.contains("32768 partitions of 4 entries"), "{text}");
        assert!(text.contains("this release manages up to 256 nodes"), "{text}");
    }

    #[test]
    fn defaults_are_those_of_this_release() {
        let ours = plan("").carried(true);
        assert_eq!((ours.partitions, ours.limit), (1024, "groups"));
        assert_eq!(plan("--groups 4096 --hosts 65536").carried(true).partitions, 4096);
        assert_eq!(plan("--division-entries 20 --partitions-per-node 1").carried(true).nodes, 10);
        for wrong in ["--entries 0", "--replicas 10", "--groups x", "--hosts 9999999999"] {
            let words = ["plan"].into_iter().chain(wrong.split(' '));
            assert!(Line::try_parse_from(words).is_err(), "{wrong}");
        }
    }
}
