//! Hot-key status that is not in the tables: why nothing is copied, and which node is most loaded.

use nicekv_metadata::{HotStatus, HotSwitchStatus};

/// One line for each switch that has such a status.
pub(crate) fn describe_hot(status: &HotStatus) -> Vec<String> {
    status.switches.iter().filter_map(|switch| describe_switch(switch, status.period_ms)).collect()
}

fn describe_switch(status: &HotSwitchStatus, period_ms: u64) -> Option<String> {
    let switch = status.switch;
    if status.periods == 0 {
        let why = status.failure.as_deref().unwrap_or("nothing has been counted yet");
        return Some(format!("hot keys of switch {switch}: {why}"));
    }
    let most_loaded = status.most_loaded.as_ref().map(|(node, percent)| {
        format!("most loaded in the last {period_ms} ms: {node} with {percent} % of the mean")
    });
    let failure = status.failure.as_ref().map(|why| format!("WRONG: {why}"));
    let unknown =
        (status.refused > 0).then(|| format!("{} counted keys belong to no keyspace", status.refused));
    let notes: Vec<_> = [most_loaded, unknown, failure].into_iter().flatten().collect();
    (!notes.is_empty()).then(|| format!("hot keys of switch {switch}: {}", notes.join("; ")))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use nicekv_metadata::HotEntryStatus;

    /// A key with copies on two nodes and in the switch, which answers two thirds of its gets.
    fn key() -> HotEntryStatus {
        HotEntryStatus {
            keyspace: 1,
            value: "0a".into(),
            instance: 9,
            owner: "node-1".into(),
            holders: vec!["node-4".into(), "node-5".into()],
            in_switch: true,
            requests_per_second: 900,
            answered_per_second: 600,
        }
    }

    fn switch() -> HotSwitchStatus {
        HotSwitchStatus {
            periods: 3,
            entries: 7,
            copied: 1,
            copies: 2,
            values: 1,
            answered_per_second: 600,
            changes: 8,
            threshold_per_second: 50,
            requests_per_second: 1_000,
            hot_per_second: 950,
            imbalance_percent: 4,
            most_loaded: Some(("node-1".into(), 110)),
            keys: vec![key()],
            ..HotSwitchStatus::default()
        }
    }

    pub(crate) fn status() -> HotStatus {
        HotStatus { period_ms: 1_000, switches: vec![switch()], ..HotStatus::default() }
    }

    #[test]
    fn most_loaded_node_and_failures_are_named() {
        let line = "hot keys of switch 0: most loaded in the last 1000 ms: node-1 with 110 % of the mean";
        assert_eq!(describe_hot(&status()), [line]);
        let failing = HotSwitchStatus { failure: Some("no table".into()), ..HotSwitchStatus::default() };
        let told = HotStatus { switches: vec![failing.clone()], ..status() };
        assert_eq!(describe_hot(&told), ["hot keys of switch 0: no table"]);
        let told = HotStatus { switches: vec![HotSwitchStatus { periods: 1, ..failing }], ..status() };
        assert_eq!(describe_hot(&told), ["hot keys of switch 0: WRONG: no table"]);
    }
}
