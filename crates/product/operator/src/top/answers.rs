//! Where gets are answered: in switches, in the kernel of a node, or in its process.

use crate::table::Table;
use nicekv_metadata::{HotStatus, HotSwitchStatus};
use nicekv_runtime::control_plane::NodeGets;
use std::time::Duration;

/// Gets per second by where they were answered. `before`: the previous counters of the nodes, and
/// how long ago they were read.
pub(super) fn table(
    hot: Option<&HotStatus>,
    before: Option<(&[(String, NodeGets)], Duration)>,
    now: &[(String, NodeGets)],
) -> Table {
    let of_switch = |switch: &HotSwitchStatus| {
        let [name, answered] = [format!("switch {}", switch.switch), switch.answered_per_second.to_string()];
        vec![name, answered, String::new(), String::new(), String::new()]
    };
    let of_node = |(name, gets): &(String, NodeGets)| {
        let earlier = before.and_then(|(before, elapsed)| {
            let (_, earlier) = before.iter().find(|(earlier, _)| earlier == name)?;
            Some((earlier, elapsed))
        });
        let rate = |count: fn(&NodeGets) -> u64| {
            let shown = earlier.map(|(earlier, elapsed)| {
                // If a node restarts, its counters begin at zero.
                let more = count(gets).saturating_sub(count(earlier));
                format!("{:.0}", more as f64 / elapsed.as_secs_f64().max(1e-3))
            });
            shown.unwrap_or_default()
        };
        let by_process = rate(|gets| gets.by_process);
        vec![
            name.clone(),
            String::new(),
            rate(|gets| gets.by_kernel),
            by_process,
            rate(|gets| gets.of_copies),
        ]
    };
    let switches = hot.into_iter().flat_map(|hot| &hot.switches);
    let rows = switches.map(of_switch).chain(now.iter().map(of_node)).collect();
    let head = ["answered by", "in the switch", "in the kernel", "in the process", "of these from copies"];
    Table::new("gets answered per second", &head, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gets_are_counted_since_the_previous_look() {
        let counted = |by_process, by_kernel, of_copies| {
            vec![("node-1".to_owned(), NodeGets { by_process, by_kernel, of_copies })]
        };
        let (before, now) = (counted(100, 1_000, 10), counted(300, 5_000, 30));
        let section =
            table(Some(&crate::hot_keys::tests::status()), Some((&before, Duration::from_secs(2))), &now);
        assert_eq!(section.rows, [["switch 0", "600", "", "", ""], ["node-1", "", "2000", "100", "10"]]);
        let first = table(Some(&crate::hot_keys::tests::status()), None, &now);
        assert_eq!(first.rows[1], ["node-1", "", "", "", ""], "a rate needs two looks");
        let restarted =
            table(Some(&crate::hot_keys::tests::status()), Some((&now, Duration::from_secs(1))), &before);
        assert_eq!(restarted.rows[1], ["node-1", "", "0", "0", "0"]);
    }
}
