//! Draws which faults a phase has, and when. There are never more at once than the cluster must
//! survive.
//!
//! At any time at most [`NODES_AWAY_MAX`] nodes are dead, cut off or paused, and each host has at
//! most one such fault. Loss, duplicates, and faults of the switch, of the metadata service's
//! instances and of etcd are in addition. All faults have ended when the phase ends.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use nicekv_testkit::Random;

use crate::layout::Layout;
use crate::topology::{Fabric, Host};

/// R − 1: each partition keeps at least one replica.
pub(crate) const NODES_AWAY_MAX: usize = 2;
/// Minimum and maximum time between the starts of two faults.
const PAUSE_MS: (u64, u64) = (50, 1_200);

/// The start or the end of a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FaultEvent {
    Kill(Host),
    Start(Host),
    /// Kills the host's process together with its edge.
    KillHost(Host),
    StartHost(Host),
    /// Cuts a host off. The flags: what is sent to the host, and what the host sends.
    Cut(Host, bool, bool),
    Heal(Host),
    Pause(Host),
    Resume(Host),
    RestartSwitch(Host),
    /// Takes down the link between two switches.
    Unplug(Host, Host),
    Plug(Host, Host),
    /// Loses frames of all hosts, in percent; 0 ends the fault.
    Loss(u64),
    /// Duplicates frames of all hosts, in percent; 0 ends the fault.
    Duplicate(u64),
}

/// The processes and links that can have faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Targets {
    pub(crate) nodes: u8,
    pub(crate) fabric: Fabric,
    /// Number of instances of the metadata service.
    pub(crate) instances: u8,
    /// Whether each instance has a member of etcd on its host.
    pub(crate) has_etcd: bool,
    /// Whether switches are Open vSwitches, with processes of their own beside the controllers.
    pub(crate) has_open_vswitch: bool,
    pub(crate) layout: Layout,
}

/// An event, and its time since the beginning of the phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scheduled {
    pub(crate) at: Duration,
    pub(crate) event: FaultEvent,
}

/// An event, and the time at which it was injected, on the boot-time clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Injected {
    pub(crate) at_ns: u64,
    pub(crate) event: FaultEvent,
}

impl FaultEvent {
    /// Whether the event starts a fault.
    pub(crate) fn is_start(self) -> bool {
        !matches!(
            self,
            Self::Start(_)
                | Self::StartHost(_)
                | Self::Heal(_)
                | Self::Resume(_)
                | Self::Plug(..)
                | Self::Loss(0)
                | Self::Duplicate(0)
        )
    }
}

impl fmt::Display for FaultEvent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(host) => write!(formatter, "kill {host}"),
            Self::Start(host) => write!(formatter, "start {host}"),
            Self::KillHost(host) => write!(formatter, "kill-host {host}"),
            Self::StartHost(host) => write!(formatter, "start-host {host}"),
            Self::Cut(host, true, true) => write!(formatter, "cut {host}"),
            Self::Cut(host, true, _) => write!(formatter, "cut {host} --in"),
            Self::Cut(host, ..) => write!(formatter, "cut {host} --out"),
            Self::Heal(host) => write!(formatter, "heal {host}"),
            Self::Pause(host) => write!(formatter, "pause {host}"),
            Self::Resume(host) => write!(formatter, "resume {host}"),
            Self::RestartSwitch(switch) => write!(formatter, "switch-restart {switch}"),
            Self::Unplug(one, other) => write!(formatter, "unplug {one} {other}"),
            Self::Plug(one, other) => write!(formatter, "plug {one} {other}"),
            Self::Loss(percent) => write!(formatter, "loss {percent}"),
            Self::Duplicate(percent) => write!(formatter, "duplicate {percent}"),
        }
    }
}

/// Kinds of faults.
#[derive(Clone, Copy, Debug)]
enum Kind {
    KillNode,
    /// Kills a node's process together with its edge.
    KillNodeHost,
    CutNode,
    PauseNode,
    KillInstance,
    PauseInstance,
    /// Also cuts the member of etcd on the instance's host.
    CutInstance,
    KillEtcd,
    PauseEtcd,
    RestartSwitch,
    KillEdge,
    PauseSwitchOrEdge,
    /// The datapath of an Open vSwitch. Its controller may have a fault at the same time.
    KillDatapath,
    PauseDatapath,
    /// The database of an Open vSwitch; never together with the datapath, which starts by it.
    KillDatabase,
    /// Cuts everything behind a switch.
    CutSwitch,
    Unplug,
    Loss,
    Duplicate,
}

/// The kinds of faults that are possible in this cluster, with their weights.
fn kinds(targets: Targets) -> Vec<(u64, Kind)> {
    let mut kinds = vec![
        (3, Kind::CutNode),
        (3, Kind::PauseNode),
        (1, Kind::KillInstance),
        (1, Kind::PauseInstance),
        (1, Kind::PauseSwitchOrEdge),
        (1, Kind::Loss),
        (1, Kind::Duplicate),
    ];
    match targets.fabric {
        Fabric::Switch => kinds.extend([(4, Kind::KillNode), (1, Kind::RestartSwitch)]),
        Fabric::Plain => kinds.extend([(2, Kind::KillNode), (2, Kind::KillNodeHost), (1, Kind::KillEdge)]),
    }
    if targets.has_etcd {
        kinds.extend([(1, Kind::KillEtcd), (2, Kind::PauseEtcd), (1, Kind::CutInstance)]);
    }
    if targets.has_open_vswitch {
        kinds.extend([(2, Kind::KillDatapath), (1, Kind::PauseDatapath), (1, Kind::KillDatabase)]);
    }
    let links = targets.layout.links().len();
    if links > 0 {
        kinds.push((2, Kind::CutSwitch));
    }
    // A link may fail only if there is an alternative path.
    if links >= targets.layout.switches().count() {
        kinds.push((3, Kind::Unplug));
    }
    kinds
}

/// Something that can have only one fault at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Host(Host),
    Link(Host, Host),
    Loss,
    Duplicates,
}

/// A fault that was drawn.
struct Fault {
    place: Place,
    start: FaultEvent,
    end: Option<FaultEvent>,
    duration_ms: u64,
}

/// The events of a phase of `span_ms`, in order of time.
pub(crate) fn draw(random: &mut Random, targets: Targets, span_ms: u64) -> Vec<Scheduled> {
    let mut events = Vec::new();
    let mut busy: BTreeMap<Place, u64> = BTreeMap::new();
    let mut at_ms = random.between(PAUSE_MS.0, PAUSE_MS.1);
    while at_ms < span_ms {
        busy.retain(|_, end_ms| *end_ms >= at_ms);
        let Fault { place, start, end, duration_ms } = draw_fault(random, targets);
        let is_node = |place: &Place| matches!(place, Place::Host(Host::Node(_)));
        let too_many =
            is_node(&place) && busy.keys().filter(|place| is_node(place)).count() >= NODES_AWAY_MAX;
        if !busy.contains_key(&place) && !too_many {
            let end_ms = (at_ms + duration_ms).min(span_ms);
            busy.insert(place, end_ms);
            let scheduled = |at_ms, event| Scheduled { at: Duration::from_millis(at_ms), event };
            events.push(scheduled(at_ms, start));
            events.extend(end.map(|end| scheduled(end_ms, end)));
        }
        at_ms += random.between(PAUSE_MS.0, PAUSE_MS.1);
    }
    events.sort_by_key(|scheduled| scheduled.at);
    events
}

fn draw_kind(random: &mut Random, targets: Targets) -> Kind {
    let kinds = kinds(targets);
    let mut drawn = random.below(kinds.iter().map(|(weight, _)| weight).sum());
    for (weight, kind) in kinds {
        if drawn < weight {
            return kind;
        }
        drawn -= weight;
    }
    unreachable!("drawn below the sum of the weights")
}

fn draw_fault(random: &mut Random, targets: Targets) -> Fault {
    let Targets { nodes, fabric, instances, layout, .. } = targets;
    let kind = draw_kind(random, targets);
    let node = Host::Node(random.below(nodes.into()) as u8);
    let number = random.below(instances.into()) as u8;
    let (instance, member) = (Host::of_instance(number), Host::Etcd(number));
    let (inward, outward) = random.pick(&[(true, true), (true, false), (false, true)]);
    let further_switches = layout.switches().count() as u64 - 1;
    let further =
        (further_switches > 0).then(|| Host::FurtherSwitch(1 + random.below(further_switches) as u8));
    // On a plain network: the host of an edge. Its faults are those of the host.
    let switch = match (fabric, further) {
        (Fabric::Switch, None) => Host::Switch,
        (Fabric::Switch, Some(further)) => random.pick(&[Host::Switch, further]),
        (Fabric::Plain, _) => random.pick(&[node, node, Host::Client(0), Host::Client(1)]),
    };
    let process = switch.edge().unwrap_or(switch);
    let number = switch.switch().unwrap_or_default();
    let (datapath, database) = (Host::OvsDatapath(number), Host::OvsDatabase(number));
    use FaultEvent as Event;
    let mut lasts = |least, most| random.between(least, most);
    let of = |host, start, end, duration_ms| Fault {
        place: Place::Host(host),
        start,
        end: Some(end),
        duration_ms,
    };
    let kill = |host, duration_ms| of(host, Event::Kill(host), Event::Start(host), duration_ms);
    let pause = |host, duration_ms| of(host, Event::Pause(host), Event::Resume(host), duration_ms);
    let cut = |host, duration_ms| of(host, Event::Cut(host, inward, outward), Event::Heal(host), duration_ms);
    match kind {
        Kind::KillNode => kill(node, lasts(50, 3_000)),
        Kind::KillNodeHost => of(node, Event::KillHost(node), Event::StartHost(node), lasts(50, 3_000)),
        Kind::CutNode => cut(node, lasts(50, 3_000)),
        Kind::PauseNode => pause(node, lasts(20, 1_500)),
        Kind::KillInstance => kill(instance, lasts(20, 1_000)),
        Kind::PauseInstance => pause(instance, lasts(20, 1_500)),
        Kind::CutInstance => cut(instance, lasts(50, 3_000)),
        Kind::KillEtcd => kill(member, lasts(50, 3_000)),
        Kind::PauseEtcd => pause(member, lasts(50, 3_000)),
        Kind::RestartSwitch => Fault {
            place: Place::Host(switch),
            start: Event::RestartSwitch(switch),
            end: None,
            duration_ms: 500,
        },
        Kind::KillEdge => of(switch, Event::Kill(process), Event::Start(process), lasts(50, 1_000)),
        Kind::PauseSwitchOrEdge => {
            of(switch, Event::Pause(process), Event::Resume(process), lasts(20, 1_000))
        }
        Kind::KillDatapath => kill(datapath, lasts(50, 1_000)),
        Kind::PauseDatapath => pause(datapath, lasts(20, 1_000)),
        Kind::KillDatabase => of(datapath, Event::Kill(database), Event::Start(database), lasts(50, 1_000)),
        Kind::CutSwitch => cut(further.unwrap_or(node), lasts(50, 1_500)),
        Kind::Unplug => {
            let duration_ms = lasts(50, 3_000);
            let (one, other) = random.pick(&layout.links());
            let (place, start, end) =
                (Place::Link(one, other), Event::Unplug(one, other), Some(Event::Plug(one, other)));
            Fault { place, start, end, duration_ms }
        }
        Kind::Loss => {
            let (duration_ms, start) = (lasts(200, 3_000), Event::Loss(random.between(1, 20)));
            Fault { place: Place::Loss, start, end: Some(Event::Loss(0)), duration_ms }
        }
        Kind::Duplicate => {
            let (duration_ms, start) = (lasts(200, 3_000), Event::Duplicate(random.between(5, 50)));
            Fault { place: Place::Duplicates, start, end: Some(Event::Duplicate(0)), duration_ms }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::layout::Shape;

    #[test]
    fn drawn_faults_respect_their_bounds_and_depend_only_on_the_seed() {
        let (mut most_away, mut kinds) = (0, BTreeSet::new());
        let control = [(1, false), (3, true)].into_iter().cycle();
        let tree = |switches| Layout::new(Shape::Tree, switches, 5);
        let mut processes = BTreeSet::new();
        let fabrics = [
            (Fabric::Switch, tree(1)),
            (Fabric::Switch, tree(3)),
            (Fabric::Plain, tree(1)),
            (Fabric::Switch, Layout::new(Shape::Turbokv, 1, 5)),
            (Fabric::Plain, tree(1)),
        ];
        let fabrics = fabrics.into_iter().cycle();
        for (seed, ((fabric, layout), (instances, has_etcd))) in (0..400).zip(fabrics.zip(control)) {
            let has_open_vswitch = fabric == Fabric::Switch && seed % 2 == 1;
            let targets = Targets { nodes: 5, fabric, instances, has_etcd, has_open_vswitch, layout };
            let events = draw(&mut Random::new(seed), targets, 10_000);
            assert_eq!(events, draw(&mut Random::new(seed), targets, 10_000));
            let (mut away, mut lasting) = (BTreeSet::new(), 0i32);
            for Scheduled { at, event } in events {
                assert!(at <= Duration::from_millis(10_000));
                kinds.insert(event.to_string().split(' ').next().unwrap().to_owned());
                lasting += match event {
                    FaultEvent::RestartSwitch(_) => 0,
                    event if event.is_start() => 1,
                    _ => -1,
                };
                match event {
                    FaultEvent::Kill(host)
                    | FaultEvent::KillHost(host)
                    | FaultEvent::Cut(host, ..)
                    | FaultEvent::Pause(host) => {
                        assert!(away.insert(host), "{host} has two faults at once");
                        if let Host::OvsDatapath(number) | Host::OvsDatabase(number) = host {
                            assert!(has_open_vswitch);
                            processes.insert(host);
                            let both = [Host::OvsDatapath(number), Host::OvsDatabase(number)];
                            assert!(!both.iter().all(|host| away.contains(host)));
                        }
                    }
                    FaultEvent::Start(host)
                    | FaultEvent::StartHost(host)
                    | FaultEvent::Heal(host)
                    | FaultEvent::Resume(host) => {
                        assert!(away.remove(&host), "{host} has no fault to end");
                    }
                    _ => {}
                }
                let nodes_away = away.iter().filter(|host| matches!(host, Host::Node(_))).count();
                assert!(nodes_away <= NODES_AWAY_MAX);
                most_away = most_away.max(nodes_away);
            }
            assert_eq!((away.len(), lasting), (0, 0), "seed {seed}");
        }
        assert_eq!(most_away, NODES_AWAY_MAX);
        assert_eq!(kinds.len(), 13, "{kinds:?}");
        assert!(processes.contains(&Host::OvsDatapath(2)) && processes.contains(&Host::OvsDatabase(0)));
    }
}
