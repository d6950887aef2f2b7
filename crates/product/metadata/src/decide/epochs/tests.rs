//! Tests of all transitions between epochs, in the form of tables: members before, observations,
//! next epoch, next step.

mod reshaping;
mod room;
mod succession;

use super::*;
use crate::policy::Policy;
use crate::state::Left;

/// Observations about nodes 1 to 5, of which 1 to 3 are the originals. By default every node is
/// live and proven, and has acknowledged the epoch.
struct Table {
    live: [Option<Process>; 5],
    proven: bool,
    acknowledged: u32,
    copied: bool,
    harmless: bool,
    expelled: Option<NodeId>,
    barred: bool,
    full: Option<u16>,
    stand_ins: &'static [u16],
    /// Whether the handoff delay has passed.
    is_time: bool,
    may_lead_again: bool,
    wants_fence: bool,
    discarded: Option<NodeId>,
    target: Vec<NodeId>,
    may_move: bool,
    policy: Policy,
    given_up: Option<NodeId>,
}

fn process(incarnation: u64) -> Process {
    Process { incarnation, storage: 1 }
}

fn only(node: usize) -> [Option<Process>; 5] {
    let mut live = [None; 5];
    live[node - 1] = Some(process(1));
    live
}

impl Default for Table {
    fn default() -> Self {
        Self {
            live: [Some(process(1)); 5],
            proven: true,
            acknowledged: 5,
            copied: false,
            harmless: false,
            expelled: None,
            barred: false,
            full: None,
            stand_ins: &[],
            is_time: true,
            may_lead_again: false,
            wants_fence: false,
            discarded: None,
            target: [1, 2, 3].map(NodeId).into(),
            may_move: true,
            policy: Policy::multicast(3),
            given_up: None,
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
    fn has_space(&self, node: NodeId) -> bool {
        self.full != Some(node.0)
    }
    fn barred(&self, _: NodeId) -> bool {
        self.barred
    }
    fn expelled(&self) -> Option<NodeId> {
        self.expelled
    }
    fn led(&self, node: NodeId) -> usize {
        // Node 5 leads the fewest partitions.
        5 - usize::from(node.0)
    }
    fn stand_ins(&self, is_urgent: bool) -> Vec<(NodeId, Process)> {
        let nodes = self.stand_ins.iter().map(|node| NodeId(*node));
        let live = nodes.filter_map(|node| Some((node, self.live(node)?)));
        live.filter(|_| is_urgent || self.is_time).collect()
    }
    fn may_lead_again(&self, _: NodeId) -> bool {
        self.may_lead_again
    }
    fn discarded(&self, left: &Left) -> bool {
        self.discarded == Some(left.node)
    }

    fn wants_fence(&self) -> bool {
        self.wants_fence
    }
    fn target(&self) -> &[NodeId] {
        &self.target
    }
    fn may_move(&self, _: NodeId) -> bool {
        self.may_move
    }
    fn policy(&self) -> Policy {
        self.policy
    }
    fn is_given_up(&self, node: NodeId) -> bool {
        self.given_up == Some(node)
    }
}

/// A partition in epoch 5, led by the first of `members`. Behind a node: `+` serving, `p` promoted,
/// `c` copying, `j` joining; `h` before that marks a handoff.
fn partition(members: &str) -> Partition {
    let member = |text: &str| {
        let standing = match &text[text.len() - 1..] {
            "+" => Standing::Serving,
            "p" => Standing::Promoted,
            "c" => Standing::Copying,
            _ => Standing::Joining,
        };
        let (node, handoff) = (NodeId(text[..1].parse().unwrap()), text[1..].starts_with('h'));
        Member { node, process: process(1), standing, handoff }
    };
    let members: Vec<_> = members.split(' ').map(member).collect();
    Partition {
        keyspace: KeyspaceId::DEFAULT,
        range: MatchRange::ALL,
        epoch: 5,
        activated: true,
        primary: members[0].node,
        members,
        removed: Vec::new(),
        originals: [1, 2, 3].map(NodeId).into(),
        newcomers: Vec::new(),
        emptied: Vec::new(),
        divisions: Divisions::default(),
        left: Vec::new(),
        forming: None,
        parents: Vec::new(),
        round: 0,
    }
}

/// The partition as `epoch primary: members -removed`. A `*` behind the epoch: it is not activated.
/// A `j` behind a removed node: it had not served.
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
        text += &format!(" {}{}{standing}", member.node.0, if member.handoff { "h" } else { "" });
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
fn requested_epoch_keeps_the_members() {
    let fence = |table: Table| Table { wants_fence: true, policy: Policy::quorum(3, 2), ..table };
    check("1+ 2+ 3+", fence(Table::default()), "6 1: 1+ 2+ 3+", "-");
    check("1+ 2c 3+", fence(Table::default()), "6 1: 1+ 2c 3+", "-");
    // If the members change, there is a new epoch anyway.
    let wiped = Some(Process { incarnation: 2, storage: 2 });
    check("1+ 2+ 3+", fence(Table::with(1, wiped)), "6* 3: 1j 2+ 3+ -1", "-");
}

#[test]
fn quorum_mode_removes_and_waits_for_no_silent_member() {
    let quorum = |table: Table| Table { policy: Policy::quorum(3, 2), ..table };
    let wiped = Some(Process { incarnation: 2, storage: 2 });
    check("1+ 2+ 3+", quorum(Table::with(2, None)), "-", "-");
    check("1+ 2+ 3+", quorum(Table { live: only(2), ..Table::default() }), "-", "-");
    // A node that restarts with its storage is a full member, while another one is silent.
    let table = Table { live: [Some(process(2)), None, Some(process(1)), None, None], ..Table::default() };
    check("1+ 2+ 3+", quorum(table), "6 1: 1p 2+ 3+", "-");
    // A node that restarts without its storage is a newcomer, and its former process is waited for
    // (R12).
    check("1+ 2+ 3+", quorum(Table::with(1, wiped)), "6* 3: 1j 2+ 3+ -1", "-");
    let silent = |copied| quorum(Table { copied, ..Table::with(2, None) });
    check("3+ 2+ 1j", silent(false), "-", "5 3: 3+ 2+ 1c");
    check("3+ 2+ 1c", silent(true), "6 3: 3+ 2+ 1p", "-");
    check("3+ 2+ 1p", silent(false), "-", "5 3: 3+ 2+ 1+");
}

#[test]
fn the_table_of_transitions() {
    let default = Table::default;
    let wiped = Some(Process { incarnation: 2, storage: 2 });
    check("1+ 2+ 3+", default(), "-", "-");
    // Suspected nodes: a secondary, the primary, two nodes, all nodes.
    check("1+ 2+ 3+", Table::with(2, None), "6* 1: 1+ 3+ -2", "-");
    check("1+ 2+ 3+", Table::with(1, None), "6* 3: 2+ 3+ -1", "-");
    check("1+ 2+ 3+", Table { live: only(2), ..default() }, "6* 2: 2+ -1 -3", "-");
    check("1+ 2+ 3+", Table { live: [None; 5], ..default() }, "-", "-");
    check("1+ 2+ 3+", Table { proven: false, ..Table::with(2, None) }, "-", "-");
    // Restarted nodes: with their storage, and without.
    check("1+ 2+ 3+", Table::with(1, Some(process(2))), "6 1: 1p 2+ 3+", "-");
    check("1+ 2+ 3+", Table::with(1, wiped), "6* 3: 1j 2+ 3+ -1", "-");
    check("1+", Table::with(1, wiped), "-", "-");
    // An original that is not a member joins, unless it is barred, or no live member has the data.
    check("1+ 2+", default(), "6 1: 1+ 2+ 3j", "-");
    check("1+ 2+", Table { barred: true, ..default() }, "-", "-");
    check("1+ 2+", Table { live: only(3), ..default() }, "-", "-");
    // The states of a joiner.
    check("1+ 2+ 3j", Table { acknowledged: 4, ..default() }, "-", "-");
    check("1+ 2+ 3j", Table { copied: true, ..default() }, "-", "5 1: 1+ 2+ 3c");
    check("1+ 2+ 3c", default(), "-", "-");
    check("1+ 2+ 3c", Table { copied: true, ..default() }, "6 1: 1+ 2+ 3p", "-");
    check("1+ 2+ 3c", Table { copied: true, acknowledged: 4, ..default() }, "-", "-");
    check("1+ 2+ 3p", default(), "-", "5 1: 1+ 2+ 3+");
    check("1+ 2+ 3p", Table { acknowledged: 4, ..default() }, "-", "-");
    // A joiner that fails never becomes the primary, and is not waited for.
    check("1+ 2+ 3c", Table::with(3, None), "6 1: 1+ 2+ -3j", "-");
    check("1+ 2+ 3c", Table::with(3, Some(process(2))), "6 1: 1+ 2+ 3j", "-");
    check("1+ 2+ 3c", Table::with(1, None), "6* 2: 2+ 3c -1", "-");
    check("1+ 3c", Table { live: only(3), ..default() }, "-", "-");
    // An expelled member is removed, unless it is the last one.
    let expelled = |node| Table { expelled: Some(NodeId(node)), ..default() };
    check("1+ 2+ 3+", expelled(1), "6* 3: 2+ 3+ -1", "-");
    check("1+ 2j 3j", expelled(1), "-", "5 1: 1+ 2c 3c");
}

#[test]
fn full_node_does_not_join() {
    let full = |node, table: Table| Table { full: Some(node), ..table };
    let default = Table::default;
    // A full original does not return, and a joiner that becomes full is removed.
    check("1+ 2+", full(3, default()), "-", "-");
    check("1+ 2+", full(2, default()), "6 1: 1+ 2+ 3j", "-");
    check("1+ 2+ 3j", full(3, default()), "6 1: 1+ 2+ -3j", "5 1: 1+ 2+ 3c");
    check("1+ 2+ 3c", full(3, default()), "6 1: 1+ 2+ -3j", "-");
    check("1+ 2+ 4hc", full(4, Table::with(3, None)), "6 1: 1+ 2+ -4j", "-");
    // A full member with all data stays, because it may have to lead.
    check("1+ 2+ 3+", full(3, default()), "-", "-");
    check("1+ 2+ 3p", full(3, default()), "-", "5 1: 1+ 2+ 3+");
    check("1+ 2+ 3+", full(3, Table::with(3, Some(process(2)))), "6 1: 1+ 2+ 3p", "-");
    // A full member that has lost its storage is removed, and waited for, because it had served.
    let wiped = Some(Process { incarnation: 2, storage: 2 });
    check("1+ 2+ 3+", full(3, Table::with(3, wiped)), "6* 1: 1+ 2+ -3", "-");
    // In quorum mode a full member stays.
    let quorum = Table { policy: Policy::quorum(3, 2), ..default() };
    check("1+ 2+ 3j", full(3, quorum), "-", "5 1: 1+ 2+ 3c");
}

#[test]
fn later_epochs_still_wait_for_a_removal() {
    let silent = Table { acknowledged: 4, ..Table::with(2, None) };
    let removed = next_epoch(&partition("1+ 2+ 3+"), &silent).unwrap();
    assert_eq!(show(&next_step(&removed, &silent)), "-");
    // The removed node returns before anything else is observed: it joins, and the wait continues.
    let back = Table { acknowledged: 4, ..Table::default() };
    let joining = next_epoch(&removed, &back).unwrap();
    assert_eq!(show(&Some(joining.clone())), "7* 1: 1+ 3+ 2j -2");
    // Its lease has ended: the epoch is in force, but the node gets no lease before it knows of its
    // removal.
    let harmless = Table { harmless: true, ..back };
    assert_eq!(show(&next_step(&joining, &harmless)), "7 1: 1+ 3+ 2j -2");
    // The node has acknowledged an epoch that removes it.
    let knows = Table { acknowledged: 6, ..Table::default() };
    assert_eq!(show(&next_step(&joining, &knows)), "7 1: 1+ 3+ 2j");
    // Another process has replaced the removed one, which is forgotten, but not before the epoch is
    // in force.
    let replaced = Table { acknowledged: 4, ..Table::with(2, Some(process(2))) };
    assert_eq!(show(&next_step(&joining, &replaced)), "-");
    let replaced = Table { harmless: true, ..replaced };
    assert_eq!(show(&next_step(&joining, &replaced)), "7 1: 1+ 3+ 2j");
}

#[test]
fn handoffs_replace_absent_originals() {
    // Originals that are not listed are not live.
    let spare = |members: &str| {
        let mut table = Table { stand_ins: &[4, 5], ..Table::default() };
        for original in 1..=3 {
            if !members.contains(&original.to_string()) {
                table.live[original - 1] = None;
            }
        }
        table
    };
    let without = |members: &str, node: usize| {
        let mut table = spare(members);
        table.live[node - 1] = None;
        table
    };
    // One original is absent: no handoff joins before the delay has passed and the epoch is
    // acknowledged, or if no node is available.
    check("1+ 2+", spare("1 2"), "6 1: 1+ 2+ 4hj", "-");
    check("1+ 2+", Table { is_time: false, ..spare("1 2") }, "-", "-");
    check("1+ 2+", Table { acknowledged: 4, ..spare("1 2") }, "-", "-");
    check("1+ 2+", Table { stand_ins: &[], ..spare("1 2") }, "-", "-");
    // Two are absent, too few are left for puts: handoffs join without the delay.
    check("1+", Table { is_time: false, ..spare("1") }, "6 1: 1+ 4hj 5hj", "-");
    check("1+", Table { stand_ins: &[4], ..spare("1") }, "6 1: 1+ 4hj", "-");
    check("1+ 4h+", spare("1"), "6 1: 1+ 4h+ 5hj", "-");
    // A handoff goes through the same states as an original.
    check("1+ 2+ 4hj", spare("1 2"), "-", "5 1: 1+ 2+ 4hc");
    check("1+ 2+ 4hc", Table { copied: true, ..spare("1 2") }, "6 1: 1+ 2+ 4hp", "-");
    check("1+ 2+ 4hp", spare("1 2"), "-", "5 1: 1+ 2+ 4h+");
    // A removal adds no handoff. A handoff does not become the primary. If a removed handoff had
    // served, it is waited for.
    check("1+ 2+ 3+", without("1 2 3", 3), "6* 1: 1+ 2+ -3", "-");
    check("1+ 2+ 4h+", without("1 2", 1), "6* 2: 2+ 4h+ -1", "-");
    check("1+ 2+ 4h+", without("1 2", 4), "6* 1: 1+ 2+ -4", "-");
    check("1+ 2+ 4hc", without("1 2", 4), "6 1: 1+ 2+ -4j", "-");
    // The last original is not removed, even if serving handoffs would remain.
    check("1+ 4h+ 5h+", without("1", 1), "-", "-");
    // A restarted handoff stays if it has its storage and all data; otherwise it joins anew. If it
    // lost its storage after it had served, its former process is waited for.
    let mut restarted = spare("1 2");
    restarted.live[3] = Some(process(2));
    check("1+ 2+ 4h+", restarted, "6 1: 1+ 2+ 4hp", "-");
    let mut restarted = spare("1 2");
    restarted.live[3] = Some(process(2));
    check("1+ 2+ 4hc", restarted, "6 1: 1+ 2+ 4hj", "-");
    let mut wiped = spare("1 2");
    wiped.live[3] = Some(Process { incarnation: 2, storage: 2 });
    check("1+ 2+ 4h+", wiped, "6* 1: 1+ 2+ 4hj -4", "-");
    // The original returns: the handoff leaves only when the original serves.
    check("1+ 2+ 4h+", spare("1 2 3"), "6 1: 1+ 2+ 4h+ 3j", "-");
    check("1+ 2+ 4h+ 3c", spare("1 2 3"), "-", "-");
    check("1+ 2+ 4h+ 3p", spare("1 2 3"), "-", "5 1: 1+ 2+ 4h+ 3+");
    check("1+ 2+ 4h+ 3+", spare("1 2 3"), "6* 1: 1+ 2+ 3+ -4", "-");
    check("1+ 2+ 4hj 3+", spare("1 2 3"), "6 1: 1+ 2+ 3+ -4j", "5 1: 1+ 2+ 4hc 3+");
    // One of two originals returns: the handoff with the least progress leaves, and of equals the
    // newest.
    check("1+ 4h+ 5h+ 2+", spare("1 2"), "6* 1: 1+ 4h+ 2+ -5", "-");
    check("1+ 4hc 5h+ 2+", spare("1 2"), "6 1: 1+ 5h+ 2+ -4j", "-");
    // The handoff is needed again, because another original fails at this moment.
    check("1+ 2+ 4h+ 3+", without("1 2 3", 2), "6* 1: 1+ 4h+ 3+ -2", "-");
}

#[test]
fn first_original_leads_a_whole_partition_again() {
    let again = || Table { may_lead_again: true, ..Table::default() };
    check("2+ 1+ 3+", again(), "6 1: 2+ 1+ 3+", "-");
    check("2+ 1+ 3+", Table::default(), "-", "-");
    check("2+ 1+ 3+", Table { acknowledged: 4, ..again() }, "-", "-");
    check("1+ 2+ 3+", again(), "-", "-");
    check("2+ 1p 3+", again(), "-", "5 2: 2+ 1+ 3+");
    check("2+ 1+ 3c", again(), "-", "-");
    // Other changes come first.
    check("2+ 1+", again(), "6 2: 2+ 1+ 3j", "-");
    check("2+ 1+ 3+ 4h+", again(), "6* 2: 2+ 1+ 3+ -4", "-");
    let mut waiting = partition("2+ 1+ 3+");
    waiting.removed.push(Removed { node: NodeId(4), incarnation: 1, since: 6, served: true });
    assert_eq!(show(&next_epoch(&waiting, &again())), "-");
}

/// The next epoch and the originals (newcomers are marked `n`) of a partition for which the ring
/// names other nodes.
fn moving(originals: &str, members: &str, observed: &Table) -> (String, String) {
    let mut partition = partition(members);
    let node = |text: &str| NodeId(text[..1].parse().unwrap());
    partition.originals = originals.split(' ').map(node).collect();
    partition.newcomers = originals.split(' ').filter(|text| text.ends_with('n')).map(node).collect();
    let shown = |next: Option<Partition>| {
        let mark = |next: &Partition, node: &NodeId| if next.newcomers.contains(node) { "n" } else { "" };
        let originals = |next: &Partition| {
            let each = next.originals.iter().map(|node| format!("{}{}", node.0, mark(next, node)));
            each.collect::<Vec<_>>().join(" ")
        };
        let originals = next.as_ref().map_or_else(String::new, originals);
        format!("{} | {originals}", show(&next))
    };
    (shown(next_epoch(&partition, observed)), shown(next_step(&partition, observed)))
}

#[test]
fn original_is_replaced_when_the_newcomer_has_copied() {
    let wants = |target: [u16; 3]| Table { target: target.map(NodeId).into(), ..Table::default() };
    let epoch = |originals: &str, members: &str, observed: &Table| moving(originals, members, observed).0;
    let to_124 = || wants([1, 2, 4]);
    assert_eq!(epoch("1 2 3", "1+ 2+ 3+", &to_124()), "6 1: 1+ 2+ 3+ 4j | 1 2 4n");
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4j", &to_124()), "- | ");
    let copied = Table { copied: true, ..to_124() };
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4c", &copied), "6 1: 1+ 2+ 3+ 4p | 1 2 4");
    // The replaced original leaves only when the newcomer serves, and is waited for.
    assert_eq!(epoch("1 2 4", "1+ 2+ 3+ 4p", &to_124()), "- | ");
    assert_eq!(epoch("1 2 4", "1+ 2+ 3+ 4+", &to_124()), "6* 1: 1+ 2+ 4+ -3 | 1 2 4");
    // A primary is replaced like any other original, and leads until then.
    let to_423 = || wants([4, 2, 3]);
    assert_eq!(epoch("1 2 3", "1+ 2+ 3+", &to_423()), "6 1: 1+ 2+ 3+ 4j | 4n 2 3");
    assert_eq!(epoch("4 2 3", "1+ 2+ 3+ 4+", &to_423()), "6* 4: 2+ 3+ 4+ -1 | 4 2 3");
    // Two originals are replaced one after the other.
    assert_eq!(epoch("1 2 3", "1+ 2+ 3+", &wants([4, 2, 5])), "6 1: 1+ 2+ 3+ 4j | 4n 2 3");
    assert_eq!(epoch("4n 2 3", "1+ 2+ 3+ 4j", &wants([4, 2, 5])), "- | ");
    // A leaving member that should stay after all becomes an original again at once.
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4c", &wants([1, 2, 3])), "6 1: 1+ 2+ 3+ -4j | 1 2 3");
    // If only the order changes, there is no new epoch.
    assert_eq!(
        moving("1 2 3", "1+ 2+ 3+", &wants([3, 1, 2])),
        ("- | ".into(), "5 1: 1+ 2+ 3+ | 3 1 2".into())
    );
}

#[test]
fn move_waits_until_no_other_replica_is_missing() {
    let to_124 = |table: Table| Table { target: [1, 2, 4].map(NodeId).into(), ..table };
    let epoch = |originals: &str, members: &str, table: Table| moving(originals, members, &to_124(table)).0;
    assert_eq!(epoch("1 2 3", "1+ 2+ 3+", Table { may_move: false, ..Table::default() }), "- | ");
    assert_eq!(epoch("1 2 3", "1+ 2+ 3+", Table::with(4, None)), "- | ");
    assert_eq!(epoch("1 2 3", "1+ 2+ 3+", Table { full: Some(4), ..Table::default() }), "- | ");
    assert_eq!(epoch("1 2 3", "1+ 2+ 3+", Table { acknowledged: 4, ..Table::default() }), "- | ");
    assert_eq!(epoch("1 2 3", "1+ 2c 3+", Table::default()), "- | ");
    assert_eq!(epoch("1 2 3", "1+ 2+ 3+", Table::with(2, None)), "6* 1: 1+ 3+ -2 | 1 2 3");
    // A dead original is replaced all the same. The handoff that stands in for it may itself become
    // the original.
    assert_eq!(epoch("1 2 3", "1+ 2+", Table::with(3, None)), "6 1: 1+ 2+ 4j | 1 2 4n");
    assert_eq!(epoch("1 2 3", "1+ 2+ 4h+", Table::with(3, None)), "6* 1: 1+ 2+ 4j -4 | 1 2 4n");
    assert_eq!(epoch("1 2 3", "1+ 2+ 5h+", Table::with(3, None)), "6 1: 1+ 2+ 5h+ 4j | 1 2 4n");
    // A newcomer that fails joins again when it returns, and is replaced if it should not be an
    // original any more.
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4c", Table::with(4, None)), "6 1: 1+ 2+ 3+ -4j | 1 2 4n");
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+", Table::default()), "6 1: 1+ 2+ 3+ 4j | 1 2 4n");
    assert_eq!(epoch("1 2 5n", "1+ 2+ 3+", Table::with(5, None)), "6 1: 1+ 2+ 3+ 4j | 1 2 4n");
    // A leaving member has all data. So it becomes the primary if the others fail, and is removed
    // if it loses its storage.
    let alone = Table { live: only(3), ..Table::default() };
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4c", alone), "6* 3: 3+ -1 -2 -4j | 1 2 4n");
    let wiped = Some(Process { incarnation: 2, storage: 2 });
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4c", Table::with(3, wiped)), "6* 1: 1+ 2+ 4c -3 | 1 2 4n");
}
