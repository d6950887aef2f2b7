//! How a partition goes from epoch to epoch (rules R3, R6, R7, R9): pure functions of its state and of what was observed.
//!
//! ```text
//!              all acked        copy done        all acked
//!   Joining ─────────▶ Copying ═══════▶ Promoted ─────────▶ Serving          ═▶ a new epoch
//!      ▲                   ║                ║                  ║             ─▶ a step within the epoch
//!      ╚═══ live again ═══ removed ◀════════╩══ suspected ═════╝
//! ```
//!
//! Nothing here remembers what happened, all is decided by comparing the state with what is observed now: an
//! event that is lost, repeated or overtaken changes nothing in the end.
//!
//! Invariants: the primary is a consistent member; a consistent member leaves only while another one stays that has shown to be
//! live and intact; whoever served and leaves is waited for (R6) before the epoch is activated; the wait passes
//! on to the epochs after it.

use alloc::vec::Vec;

use nicekv_wire::NodeId;

use crate::state::{Member, Partition, Process, Removed, Standing};

/// What is known about the nodes, from the view of one partition.
pub(crate) trait Observed {
    /// The node's process, if it is live.
    fn live(&self, node: NodeId) -> Option<Process>;
    /// Whether `survivor` has proven to be there since `silent` is not: else they may have died together, and be `silent`
    /// the one that comes back with its data.
    fn outlives(&self, survivor: NodeId, silent: NodeId) -> bool;
    /// The newest epoch that this process of the node has acknowledged; 0 if none.
    fn acknowledged(&self, node: NodeId, incarnation: u64) -> u32;
    /// Whether the node has reported, in the current epoch, that its copy is complete.
    fn copied(&self, node: NodeId) -> bool;
    /// Whether the former member can answer no get any more.
    fn harmless(&self, removed: &Removed) -> bool;
    /// Whether the node must stay out for now.
    fn barred(&self, node: NodeId) -> bool;
    /// The member that loses its place although it is live, because it and another cannot talk.
    fn expelled(&self) -> Option<NodeId>;
    /// Partitions that the node leads.
    fn led(&self, node: NodeId) -> usize;
}

/// The first epoch: every original is consistent, as there is nothing to be inconsistent about.
pub(crate) fn first(originals: Vec<NodeId>, process: impl Fn(NodeId) -> Process) -> Partition {
    let member =
        |node: &NodeId| Member { node: *node, process: process(*node), standing: Standing::Promoted };
    Partition {
        epoch: 1,
        activated: true,
        primary: originals[0],
        members: originals.iter().map(member).collect(),
        removed: Vec::new(),
        originals,
    }
}

/// Whether a consistent member is there with everything that it held.
pub(crate) fn has_live_consistent(partition: &Partition, observed: &impl Observed) -> bool {
    partition.consistent().any(|member| is_intact(member, observed))
}

/// Whether every consistent member is there, and none has what it held: the data are lost.
pub(crate) fn is_lost(partition: &Partition, observed: &impl Observed) -> bool {
    let wiped = |member: &Member| {
        observed.live(member.node).is_some_and(|process| process.storage != member.process.storage)
    };
    partition.consistent().all(wiped)
}

fn is_intact(member: &Member, observed: &impl Observed) -> bool {
    observed.live(member.node).is_some_and(|process| process.storage == member.process.storage)
}

/// Whether every member has taken up the current epoch.
pub(crate) fn all_acknowledged(partition: &Partition, observed: &impl Observed) -> bool {
    let acknowledged =
        |member: &Member| observed.acknowledged(member.node, member.process.incarnation) == partition.epoch;
    partition.members.iter().all(acknowledged)
}

/// The next epoch, if what is observed calls for one.
pub(crate) fn next_epoch(partition: &Partition, observed: &impl Observed) -> Option<Partition> {
    if !has_live_consistent(partition, observed) {
        return None;
    }
    let members = next_members(partition, observed);
    let announced = |member: &Member| (member.node, member.process, member.standing.is_consistent());
    if members.iter().map(announced).eq(partition.members.iter().map(announced)) {
        return None;
    }
    let mut next = Partition { epoch: partition.epoch + 1, members, ..partition.clone() };
    for member in &partition.members {
        remember_removed(&mut next, member);
    }
    let keeps_primary = next.member(next.primary).is_some_and(|member| member.standing.is_consistent());
    if !keeps_primary {
        let successor = next.consistent().min_by_key(|member| observed.led(member.node));
        next.primary = successor.expect("a live consistent member stays").node;
    }
    Some(next)
}

fn next_members(partition: &Partition, observed: &impl Observed) -> Vec<Member> {
    let has_survivor = |silent: NodeId| {
        partition
            .consistent()
            .any(|member| is_intact(member, observed) && observed.outlives(member.node, silent))
    };
    let expelled = observed.expelled().filter(|expelled| {
        partition.consistent().any(|member| member.node != *expelled && is_intact(member, observed))
    });
    let all_acknowledged = all_acknowledged(partition, observed);
    let mut members = Vec::with_capacity(partition.originals.len());
    for member in &partition.members {
        if expelled == Some(member.node) {
            continue;
        }
        match observed.live(member.node) {
            Some(process) => members.push(next_member(member, process, all_acknowledged, observed)),
            None if has_survivor(member.node) => {}
            None => members.push(*member),
        }
    }
    for &node in &partition.originals {
        let is_new = partition.member(node).is_none() && !observed.barred(node);
        if let Some(process) = observed.live(node).filter(|_| is_new) {
            members.push(Member { node, process, standing: Standing::Joining });
        }
    }
    members
}

fn next_member(
    member: &Member,
    process: Process,
    all_acknowledged: bool,
    observed: &impl Observed,
) -> Member {
    let same_process = process.incarnation == member.process.incarnation;
    let standing = match member.standing {
        Standing::Copying if same_process && all_acknowledged && observed.copied(member.node) => {
            Standing::Promoted
        }
        standing if same_process => standing,
        // Its log holds all that it promised.
        standing if standing.is_consistent() && process.storage == member.process.storage => {
            Standing::Promoted
        }
        _ => Standing::Joining,
    };
    Member { process, standing, ..*member }
}

/// Notes that `member` of the epoch before is not one, or not a consistent one, any more.
///
/// A restarted member that stays consistent is not noted: nothing is decided without it, and its former process
/// is gone.
fn remember_removed(next: &mut Partition, member: &Member) {
    let served = member.standing.is_consistent();
    let stays = next.member(member.node).is_some_and(|now| now.standing.is_consistent() || !served);
    if stays {
        return;
    }
    let (node, incarnation, since) = (member.node, member.process.incarnation, next.epoch);
    next.activated &= !served;
    match next.removed.iter_mut().find(|entry| entry.node == node && entry.incarnation == incarnation) {
        Some(entry) => *entry = Removed { since, served: entry.served || served, ..*entry },
        None => next.removed.push(Removed { node, incarnation, since, served }),
    }
}

/// The next step within the epoch, if there is one.
///
/// Activation looks only at removals that are persisted already: from then on the removed get no lease, so one that
/// has run out stays so.
pub(crate) fn next_step(partition: &Partition, observed: &impl Observed) -> Option<Partition> {
    let is_final = partition.members.iter().all(|member| member.standing == Standing::Serving);
    if is_final && partition.activated && partition.removed.is_empty() {
        return None;
    }
    let mut next = partition.clone();
    if all_acknowledged(partition, observed) {
        for member in &mut next.members {
            member.standing = match member.standing {
                Standing::Joining => Standing::Copying,
                Standing::Promoted => Standing::Serving,
                standing => standing,
            };
        }
    }
    next.removed.retain(|removed| observed.acknowledged(removed.node, removed.incarnation) < removed.since);
    let activated = next.removed.iter().all(|removed| !removed.served || observed.harmless(removed));
    next.activated |= activated;
    if next.activated {
        // A former process is gone for good when another one has taken its place.
        next.removed.retain(|removed| {
            observed.live(removed.node).is_none_or(|process| process.incarnation == removed.incarnation)
        });
    }
    (next != *partition).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes 1 to 3; everything is live, proven, acknowledged, unless told otherwise.
    struct Table {
        live: [Option<Process>; 3],
        proven: bool,
        acknowledged: u32,
        copied: bool,
        harmless: bool,
        expelled: Option<NodeId>,
        barred: bool,
    }

    fn process(incarnation: u64) -> Process {
        Process { incarnation, storage: 1 }
    }

    impl Default for Table {
        fn default() -> Self {
            Self {
                live: [Some(process(1)); 3],
                proven: true,
                acknowledged: 5,
                copied: false,
                harmless: false,
                expelled: None,
                barred: false,
            }
        }
    }

    impl Table {
        fn with(node: usize, live: Option<Process>) -> Self {
            let mut table = Self::default();
            table.live[node - 1] = live;
            table
        }
    }

    impl Observed for Table {
        fn live(&self, node: NodeId) -> Option<Process> {
            self.live[usize::from(node.0) - 1]
        }
        fn outlives(&self, _: NodeId, _: NodeId) -> bool {
            self.proven
        }
        fn acknowledged(&self, _: NodeId, _: u64) -> u32 {
            self.acknowledged
        }
        fn copied(&self, _: NodeId) -> bool {
            self.copied
        }
        fn harmless(&self, _: &Removed) -> bool {
            self.harmless
        }
        fn barred(&self, _: NodeId) -> bool {
            self.barred
        }
        fn expelled(&self) -> Option<NodeId> {
            self.expelled
        }
        fn led(&self, node: NodeId) -> usize {
            // Node 3 leads least.
            3 - usize::from(node.0)
        }
    }

    /// In epoch 5, led by the first of `members`; `+` serving, `p` promoted, `c` copying, `j` joining.
    fn partition(members: &str) -> Partition {
        let member = |text: &str| {
            let standing = match &text[1..] {
                "+" => Standing::Serving,
                "p" => Standing::Promoted,
                "c" => Standing::Copying,
                _ => Standing::Joining,
            };
            Member { node: NodeId(text[..1].parse().unwrap()), process: process(1), standing }
        };
        let members: Vec<_> = members.split(' ').map(member).collect();
        Partition {
            epoch: 5,
            activated: true,
            primary: members[0].node,
            members,
            removed: Vec::new(),
            originals: [1, 2, 3].map(NodeId).into(),
        }
    }

    /// `epoch primary members removed`, with `*` for an epoch that is not activated.
    fn show(partition: &Option<Partition>) -> String {
        let Some(partition) = partition else { return "-".into() };
        let mark = if partition.activated { "" } else { "*" };
        let mut text = format!("{}{mark} {}:", partition.epoch, partition.primary.0);
        for member in &partition.members {
            let standing = match member.standing {
                Standing::Serving => '+',
                Standing::Promoted => 'p',
                Standing::Copying => 'c',
                Standing::Joining => 'j',
            };
            text += &format!(" {}{standing}", member.node.0);
        }
        for removed in &partition.removed {
            text += &format!(" -{}{}", removed.node.0, if removed.served { "" } else { "j" });
        }
        text
    }

    #[track_caller]
    fn check(members: &str, observed: Table, epoch: &str, step: &str) {
        let partition = partition(members);
        assert_eq!(show(&next_epoch(&partition, &observed)), epoch, "next epoch of {members}");
        assert_eq!(show(&next_step(&partition, &observed)), step, "next step of {members}");
    }

    #[test]
    fn the_table_of_transitions() {
        let default = Table::default;
        let wiped = Some(Process { incarnation: 2, storage: 2 });
        check("1+ 2+ 3+", default(), "-", "-");
        // Suspected: a secondary, the primary, two, all.
        check("1+ 2+ 3+", Table::with(2, None), "6* 1: 1+ 3+ -2", "-");
        check("1+ 2+ 3+", Table::with(1, None), "6* 3: 2+ 3+ -1", "-");
        check("1+ 2+ 3+", Table { live: [None, Some(process(1)), None], ..default() }, "6* 2: 2+ -1 -3", "-");
        check("1+ 2+ 3+", Table { live: [None; 3], ..default() }, "-", "-");
        check("1+ 2+ 3+", Table { proven: false, ..Table::with(2, None) }, "-", "-");
        // Restarted: with its storage, without.
        check("1+ 2+ 3+", Table::with(1, Some(process(2))), "6 1: 1p 2+ 3+", "-");
        check("1+ 2+ 3+", Table::with(1, wiped), "6* 3: 1j 2+ 3+ -1", "-");
        check("1+", Table::with(1, wiped), "-", "-");
        // Not a member: joins, unless barred, or unless nobody could give it the data.
        check("1+ 2+", default(), "6 1: 1+ 2+ 3j", "-");
        check("1+ 2+", Table { barred: true, ..default() }, "-", "-");
        check("1+ 2+", Table { live: [None, None, Some(process(1))], ..default() }, "-", "-");
        // On its way in.
        check("1+ 2+ 3j", Table { acknowledged: 4, ..default() }, "-", "-");
        check("1+ 2+ 3j", Table { copied: true, ..default() }, "-", "5 1: 1+ 2+ 3c");
        check("1+ 2+ 3c", default(), "-", "-");
        check("1+ 2+ 3c", Table { copied: true, ..default() }, "6 1: 1+ 2+ 3p", "-");
        check("1+ 2+ 3c", Table { copied: true, acknowledged: 4, ..default() }, "-", "-");
        check("1+ 2+ 3p", default(), "-", "5 1: 1+ 2+ 3+");
        check("1+ 2+ 3p", Table { acknowledged: 4, ..default() }, "-", "-");
        // Lost on its way in: never a primary, never waited for.
        check("1+ 2+ 3c", Table::with(3, None), "6 1: 1+ 2+ -3j", "-");
        check("1+ 2+ 3c", Table::with(3, Some(process(2))), "6 1: 1+ 2+ 3j", "-");
        check("1+ 2+ 3c", Table::with(1, None), "6* 2: 2+ 3c -1", "-");
        check("1+ 3c", Table { live: [None, None, Some(process(1))], ..default() }, "-", "-");
        // Expelled; but never the last.
        let expelled = |node| Table { expelled: Some(NodeId(node)), ..default() };
        check("1+ 2+ 3+", expelled(1), "6* 3: 2+ 3+ -1", "-");
        check("1+ 2j 3j", expelled(1), "-", "5 1: 1+ 2c 3c");
    }

    #[test]
    fn a_removal_is_waited_for_through_later_epochs() {
        let silent = Table { acknowledged: 4, ..Table::with(2, None) };
        let removed = next_epoch(&partition("1+ 2+ 3+"), &silent).unwrap();
        assert_eq!(show(&next_step(&removed, &silent)), "-");
        // It comes back before anything else is known: joins, the wait goes on.
        let back = Table { acknowledged: 4, ..Table::default() };
        let joining = next_epoch(&removed, &back).unwrap();
        assert_eq!(show(&Some(joining.clone())), "7* 1: 1+ 3+ 2j -2");
        // Harmless: in force, but it gets no lease before it knows.
        let harmless = Table { harmless: true, ..back };
        assert_eq!(show(&next_step(&joining, &harmless)), "7 1: 1+ 3+ 2j -2");
        // It says itself that it knows.
        let knows = Table { acknowledged: 6, ..Table::default() };
        assert_eq!(show(&next_step(&joining, &knows)), "7 1: 1+ 3+ 2j");
        // Another process has taken its place: forgotten, but not before the epoch is in force.
        let replaced = Table { acknowledged: 4, ..Table::with(2, Some(process(2))) };
        assert_eq!(show(&next_step(&joining, &replaced)), "-");
        let replaced = Table { harmless: true, ..replaced };
        assert_eq!(show(&next_step(&joining, &replaced)), "7 1: 1+ 3+ 2j");
    }
}
