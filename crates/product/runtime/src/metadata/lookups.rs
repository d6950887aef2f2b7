//! Key lookups in the switches' installed tables, for commands. Each agent is asked on its stream,
//! and the visitor waits until all agents have answered or a timeout expires.

use crate::control_plane::SwitchAnswer;
use nicekv_metadata::SwitchId;
use nicekv_proto::{Duration, Now};
use nicekv_switch::control::{ControlReply, Lookup};

/// Timeout of the switches' answers.
const ANSWERS_MAX: Duration = Duration::from_secs(1);

/// A visitor's lookup that is under way.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    lookup: Lookup,
    ends_ns: u64,
    answers: Vec<(SwitchId, SwitchAnswer)>,
    /// Switches that have not answered yet.
    outstanding: Vec<SwitchId>,
}

impl Pending {
    /// `asked` has all switches: name, id, and whether its agent is connected.
    pub(super) fn new(now: Now, lookup: Lookup, asked: &[(String, SwitchId, bool)]) -> Self {
        let silent = |(name, id, _): &(String, SwitchId, bool)| {
            (*id, SwitchAnswer { switch: name.clone(), term: 0, generation: None, found: None })
        };
        let outstanding = asked.iter().filter(|(_, _, is_asked)| *is_asked).map(|(_, id, _)| *id).collect();
        let answers = asked.iter().map(silent).collect();
        Self { lookup, ends_ns: now.after(ANSWERS_MAX), answers, outstanding }
    }

    /// Processes a switch's answer.
    pub(super) fn hear(&mut self, switch: SwitchId, reply: &ControlReply) {
        let ControlReply::Found { term, generation, lookup, found } = reply else { return };
        let is_owed = *lookup == self.lookup && self.outstanding.contains(&switch);
        let answer = self.answers.iter_mut().find(|(id, _)| *id == switch).filter(|_| is_owed);
        if let Some((_, answer)) = answer {
            (answer.term, answer.generation, answer.found) = (*term, *generation, Some(found.clone()));
            self.outstanding.retain(|id| *id != switch);
        }
    }

    /// All answers, once they are complete or the timeout has expired.
    pub(super) fn answers(&self, now: Now) -> Option<Vec<&SwitchAnswer>> {
        let is_time = self.outstanding.is_empty() || now.boot_ns >= self.ends_ns;
        is_time.then(|| self.answers.iter().map(|(_, answer)| answer).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_switch::control::Found;

    #[test]
    fn lookup_returns_connected_switches_or_times_out() {
        let lookup =
            Lookup { unicast: [10, 10, 0, 1], multicast: [10, 11, 0, 1], value: 0, keyspace: 0, watch: None };
        let at = |boot_ns| Now { boot_ns, unix_ms: 0 };
        let asked = [
            ("a".into(), SwitchId(0), true),
            ("b".into(), SwitchId(1), false),
            ("c".into(), SwitchId(2), true),
        ];
        let mut pending = Pending::new(at(5), lookup, &asked);
        let reply =
            |lookup| ControlReply::Found { term: 3, generation: Some(7), lookup, found: Found::default() };
        pending.hear(SwitchId(0), &reply(lookup));
        pending.hear(SwitchId(1), &reply(lookup));
        pending.hear(SwitchId(2), &reply(Lookup { unicast: [10, 10, 0, 2], ..lookup }));
        pending.hear(SwitchId(2), &ControlReply::Refused { current_term: 4 });
        assert_eq!(pending.answers(at(6)), None, "the third switch has not answered");
        let heard = |pending: &Pending, now| -> Vec<bool> {
            pending.answers(now).unwrap().iter().map(|answer| answer.found.is_some()).collect()
        };
        assert_eq!(heard(&pending, at(5 + ANSWERS_MAX.as_nanos() as u64)), [true, false, false]);
        pending.hear(SwitchId(2), &reply(lookup));
        assert_eq!(heard(&pending, at(6)), [true, false, true]);
        let first = pending.answers(at(6)).unwrap()[0].clone();
        assert_eq!((first.switch.as_str(), first.term, first.generation), ("a", 3, Some(7)));
    }
}
