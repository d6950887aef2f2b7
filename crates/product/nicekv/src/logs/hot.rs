//! What has changed of hot keys between two looks at the metadata service.

use super::differences::Event;
use log::Level;
use nicekv_metadata::HotStatus;

/// That they are not spread is said once, and so is each other reason of a switch.
pub(super) fn of_hot(before: Option<&HotStatus>, now: Option<&HotStatus>) -> Vec<Event> {
    let Some(now) = now else { return Vec::new() };
    let mut events = Vec::new();
    if let Some(why) = now.off.as_deref().filter(|_| before.is_none_or(|before| before.off != now.off)) {
        events.push(Event::new(Level::Warn, "hot-keys-off").with("reason", why));
    }
    for switch in &now.switches {
        let earlier = before.and_then(|before| before.switches.iter().find(|it| it.switch == switch.switch));
        let event = |level, name| Event::new(level, name).with("switch", u64::from(switch.switch));
        let failure = switch.failure.as_deref();
        let failed = failure.filter(|_| earlier.is_none_or(|earlier| earlier.failure != switch.failure));
        events.extend(failed.map(|why| event(Level::Warn, "hot-keys-failed").with("reason", why)));
        let changes = switch.changes.saturating_sub(earlier.map_or(0, |earlier| earlier.changes));
        if changes > 0 {
            let changed = event(Level::Debug, "hot-keys-changed").with("count", changes);
            let changed = changed.with("entries", switch.entries as u64);
            events.push(changed.with("copies", switch.copies as u64));
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_metadata::HotSwitchStatus;

    #[test]
    fn a_reason_is_told_once() {
        let names = |before: Option<&HotStatus>, now: &HotStatus| -> Vec<&str> {
            of_hot(before, Some(now)).iter().map(|event| event.name).collect()
        };
        let off = HotStatus { off: Some("edges".into()), ..HotStatus::default() };
        assert_eq!((names(None, &off), names(Some(&off), &off)), (vec!["hot-keys-off"], vec![]));
        let switch = |failure: Option<&str>, changes| {
            let failure = failure.map(str::to_owned);
            let switch = HotSwitchStatus { failure, changes, ..HotSwitchStatus::default() };
            HotStatus { switches: vec![switch], ..HotStatus::default() }
        };
        let (well, failed, later) = (switch(None, 0), switch(Some("full"), 0), switch(Some("full"), 3));
        assert_eq!(names(Some(&well), &failed), ["hot-keys-failed"]);
        assert_eq!(names(Some(&failed), &later), ["hot-keys-changed"]);
        assert_eq!(of_hot(Some(&later), None), []);
    }
}
