//! How hot keys are spread, for people.

use nicekv_metadata::{HotEntryStatus, HotStatus, HotSwitchStatus};

/// Hot keys that are shown one by one, of each switch.
const KEYS_SHOWN_MAX: usize = 5;

/// One line for each switch, and one for each of the keys that are asked most.
pub(crate) fn describe_hot(told: &HotStatus) -> Vec<String> {
    if let Some(why) = &told.off {
        return vec![format!("hot keys are not spread: {why}")];
    }
    let of_switch = |switch: &HotSwitchStatus| {
        let keys = switch.keys.iter().take(KEYS_SHOWN_MAX).map(describe_key);
        std::iter::once(describe_switch(switch, told.period_ms)).chain(keys).collect::<Vec<_>>()
    };
    told.switches.iter().flat_map(of_switch).collect()
}

fn describe_switch(told: &HotSwitchStatus, period_ms: u64) -> String {
    let HotSwitchStatus { switch, entries, copied, copies, values, changes, threshold_per_second, .. } = told;
    if told.periods == 0 {
        let why = told.failure.as_deref().unwrap_or("nothing is counted yet");
        return format!("hot keys of switch {switch}: {why}");
    }
    let most = told.most_loaded.as_ref();
    let most = most.map(|(node, percent)| format!(", {node} has most to do, {percent} % of the mean"));
    let failure = told.failure.as_ref().map(|why| format!("; WRONG: {why}"));
    let refused = (told.refused > 0).then(|| format!(", {} counted that are nobody's", told.refused));
    format!(
        "hot keys of switch {switch}: {entries} entries, {copied} of them with {copies} copies, {values} in the switch, T {threshold_per_second} requests/s, \
         {} % of {} requests/s are for them and {} % answered by the switch, imbalance {} % in the last {period_ms} ms{}, {changes} changes{}{}",
        told.hot_percent(),
        told.requests_per_second,
        told.answered_percent(),
        told.imbalance_percent,
        most.unwrap_or_default(),
        refused.unwrap_or_default(),
        failure.unwrap_or_default(),
    )
}

fn describe_key(told: &HotEntryStatus) -> String {
    let HotEntryStatus { keyspace, value, owner, in_switch, requests_per_second, .. } = told;
    let answered = match told.answered_per_second {
        0 => String::new(),
        answered => format!(", {answered} of them answered by the switch"),
    };
    format!(
        "hot key with match value {value} of keyspace {keyspace}: {requests_per_second} requests/s{answered}, owner {owner}, {}",
        describe_copies(&told.holders, *in_switch)
    )
}

fn describe_copies(holders: &[String], in_switch: bool) -> String {
    let holders = holders.join(" ");
    match (holders.is_empty(), in_switch) {
        (true, false) => "no copies".into(),
        (true, true) => "a copy in the switch".into(),
        (false, false) => format!("copies at {holders}"),
        (false, true) => format!("copies at {holders} and in the switch"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A key with copies at two nodes and in the switch, which answers two thirds of its gets.
    pub(crate) fn key() -> HotEntryStatus {
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

    #[test]
    fn what_is_spread_is_told_in_numbers_and_what_is_not_with_the_reason() {
        let told = HotStatus { period_ms: 1_000, switches: vec![switch()], ..HotStatus::default() };
        let [of_switch, of_key] = &describe_hot(&told)[..] else { panic!("two lines") };
        for part in [
            "7 entries, 1 of them with 2 copies, 1 in the switch",
            "T 50 ",
            "95 % of 1000 requests/s are for them and 60 % answered by the switch",
            "imbalance 4 %",
            "8 changes",
        ] {
            assert!(of_switch.contains(part), "{of_switch}");
        }
        let told_of_key = "900 requests/s, 600 of them answered by the switch, owner node-1, copies at node-4 node-5 and in the switch";
        assert!(of_key.ends_with(told_of_key), "{of_key}");
        assert_eq!(describe_copies(&[], true), "a copy in the switch");
        assert_eq!(describe_copies(&[], false), "no copies");
        let failed = HotSwitchStatus { failure: Some("no table".into()), ..HotSwitchStatus::default() };
        let told = HotStatus { switches: vec![failed], ..told };
        assert_eq!(describe_hot(&told), ["hot keys of switch 0: no table"]);
        let told = HotStatus { off: Some("edges".into()), ..told };
        assert_eq!(describe_hot(&told), ["hot keys are not spread: edges"]);
    }
}
