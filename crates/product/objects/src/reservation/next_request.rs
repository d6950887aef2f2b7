//! Unicast: when to request more windows if there were fewer than needed.

use crate::reservation::config::Config;
use crate::reservation::window::Window;

/// When to request windows of the remaining targets, from the end of the last pick on. `asked_ns` is the earliest time in
/// the request before these picks, unless that was the chunk's first one.
///
/// The request leaves in time for its answers: before the picks if there is room; between the first two; or just before the
/// last one ends. `None` without picks: then there is nothing to wait for.
pub fn next_request_ns(config: &Config, now_ns: u64, asked_ns: Option<u64>, picks: &[Window]) -> Option<u64> {
    let control_ns = config.control_ns();
    let (first, last) = (picks.first()?, picks.last()?);
    let is_before =
        |asked_ns: &u64| first.left_ns > asked_ns + control_ns && *asked_ns > now_ns + config.hop_ns();
    if let Some(asked_ns) = asked_ns.filter(is_before) {
        return Some(asked_ns);
    }
    if picks.get(1).is_some_and(|second| second.left_ns > first.right_ns + control_ns) {
        return Some(first.right_ns);
    }
    Some(last.right_ns.saturating_sub(2 * control_ns).max(last.left_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_leaves_in_the_first_gap() {
        let config = Config::UNICAST;
        let control = config.control_ns();
        let pick = |left_ns, right_ns| Window { left_ns, right_ns };
        let picks = [pick(100_000, 200_000), pick(201_000, 300_000)];
        let ask = |asked, picks: &[Window]| next_request_ns(&config, 50_000, asked, picks);
        assert_eq!(ask(None, &[]), None);
        assert_eq!(ask(None, &picks), Some(300_000 - 2 * control));
        assert_eq!(ask(None, &picks[..1]), Some(200_000 - 2 * control));
        assert_eq!(ask(None, &[pick(100_000, 101_000)]), Some(100_000), "not before it begins");
        // The request uses a pause before or between the picks, unless that leaves no time for an
        // accept.
        let apart = [picks[0], pick(200_001 + control, 300_000)];
        assert_eq!(ask(None, &apart), Some(200_000));
        assert_eq!(ask(Some(60_000), &apart), Some(60_000));
        assert_eq!(ask(Some(50_000 + config.hop_ns()), &apart), Some(200_000));
        assert_eq!(ask(Some(100_000 - control), &picks), Some(300_000 - 2 * control));
    }
}
