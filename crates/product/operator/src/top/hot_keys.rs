//! Hot keys, and who answers gets: switches, and at each node its kernel and its process.

use super::sections::Section;
use nicekv_metadata::{HotEntryStatus, HotStatus, HotSwitchStatus};
use nicekv_runtime::control_plane::NodeGets;
use std::time::Duration;

/// Hot keys that are shown one by one, of each switch.
const KEYS_MAX: usize = 8;

/// A line for each switch that has any.
pub(super) fn switches(told: &HotStatus) -> Section {
    let row = |switch: &HotSwitchStatus| {
        vec![
            switch.switch.to_string(),
            switch.entries.to_string(),
            switch.copied.to_string(),
            switch.copies.to_string(),
            switch.values.to_string(),
            switch.threshold_per_second.to_string(),
            switch.requests_per_second.to_string(),
            format!("{} %", switch.hot_percent()),
            format!("{} %", switch.answered_percent()),
            format!("{} %", switch.imbalance_percent),
            switch.changes.to_string(),
        ]
    };
    let title = told.off.as_ref().map_or("hot keys".into(), |why| format!("hot keys are not spread: {why}"));
    let head = vec![
        "switch",
        "entries",
        "copied",
        "copies",
        "in switch",
        "T/s",
        "requests/s",
        "for them",
        "by switch",
        "imbalance",
        "changes",
    ];
    Section { title, head, rows: told.switches.iter().map(row).collect() }
}

/// A line for each of the keys that are asked most.
pub(super) fn keys(told: &HotStatus) -> Option<Section> {
    let row = |key: &HotEntryStatus| {
        vec![
            key.keyspace.to_string(),
            key.value.clone(),
            key.requests_per_second.to_string(),
            key.answered_per_second.to_string(),
            key.owner.clone(),
            if key.in_switch { "yes" } else { "" }.into(),
            key.holders.join(" "),
        ]
    };
    let shown = told.switches.iter().flat_map(|switch| switch.keys.iter().take(KEYS_MAX));
    let rows: Vec<_> = shown.map(row).collect();
    let head =
        vec!["keyspace", "match value", "requests/s", "by switch/s", "owner", "in switch", "copies at"];
    (!rows.is_empty()).then(|| Section { title: "keys that are asked most".into(), head, rows })
}

/// Who has answered gets since the last look. `before`: what nodes said then, and how long ago that was.
pub(super) fn answers(
    hot: Option<&HotStatus>,
    before: Option<(&[(String, NodeGets)], Duration)>,
    now: &[(String, NodeGets)],
) -> Section {
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
                // A node that has begun anew has counted less.
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
    let head = vec!["where", "in the switch", "in the kernel", "in the process", "of these from copies"];
    Section { title: "gets answered in a second".into(), head, rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> HotStatus {
        let switch = HotSwitchStatus {
            entries: 7,
            copied: 2,
            copies: 3,
            values: 1,
            requests_per_second: 1_000,
            hot_per_second: 950,
            answered_per_second: 600,
            keys: vec![crate::hot_keys::tests::key()],
            ..HotSwitchStatus::default()
        };
        HotStatus { switches: vec![switch], ..HotStatus::default() }
    }

    #[test]
    fn keys_are_shown_with_who_has_copies_and_who_answers() {
        let rows = |section: Section| section.rows.concat().join(" ");
        assert_eq!(rows(switches(&status())), "0 7 2 3 1 0 1000 95 % 60 % 0 % 0");
        assert_eq!(rows(keys(&status()).unwrap()), "1 0a 900 600 node-1 yes node-4 node-5");
        assert!(keys(&HotStatus::default()).is_none());
    }

    #[test]
    fn gets_are_shown_by_who_has_answered_them_since_the_last_look() {
        let told = |by_process, by_kernel, of_copies| {
            vec![("node-1".to_owned(), NodeGets { by_process, by_kernel, of_copies })]
        };
        let (before, now) = (told(100, 1_000, 10), told(300, 5_000, 30));
        let section = answers(Some(&status()), Some((&before, Duration::from_secs(2))), &now);
        assert_eq!(section.rows, [["switch 0", "600", "", "", ""], ["node-1", "", "2000", "100", "10"]]);
        let first = answers(Some(&status()), None, &now);
        assert_eq!(first.rows[1], ["node-1", "", "", "", ""], "rates need two looks");
        let restarted = answers(Some(&status()), Some((&now, Duration::from_secs(1))), &before);
        assert_eq!(restarted.rows[1], ["node-1", "", "0", "0", "0"]);
    }
}
