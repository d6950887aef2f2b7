//! Which faults a phase has, and when: drawn from the seed, no more at once than the cluster must survive.
//!
//! At any time at most [`NODES_AWAY_MAX`] nodes are dead, cut off or paused, and each host has one such fault; loss, duplicates, and
//! faults of the switch, of the metadata service's instances and of etcd come on top. All faults have ended when the phase ends.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use nicekv_testkit::Random;

use crate::layout::Layout;
use crate::topology::{Fabric, Host};

/// R − 1: one original of a partition is left.
pub(crate) const NODES_AWAY_MAX: usize = 2;
/// From one fault to the next.
const PAUSE_MS: (u64, u64) = (50, 1_200);

/// Something that is done to the cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Deed {
    Kill(Host),
    Start(Host),
    /// With its edge.
    KillHost(Host),
    StartHost(Host),
    /// Directions: what reaches the host, what it sends.
    Cut(Host, bool, bool),
    Join(Host),
    Pause(Host),
    Resume(Host),
    RestartSwitch(Host),
    /// The cable between two switches.
    Unplug(Host, Host),
    Plug(Host, Host),
    /// Per cent, everywhere; 0 ends it.
    Loss(u64),
    /// Per cent, everywhere; 0 ends it.
    Duplicate(u64),
}

/// What faults may befall.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victims {
    pub(crate) nodes: u8,
    pub(crate) fabric: Fabric,
    /// Of the metadata service.
    pub(crate) instances: u8,
    /// Whether each of them has a member of etcd beside it.
    pub(crate) has_etcd: bool,
    /// In the middle.
    pub(crate) layout: Layout,
}

/// A deed and its time, from the beginning of the phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) at: Duration,
    pub(crate) deed: Deed,
}

/// A deed, and when it was begun, on the boot-time clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Done {
    pub(crate) at_ns: u64,
    pub(crate) deed: Deed,
}

impl Deed {
    /// Whether it is a fault, and not the end of one.
    pub(crate) fn is_fault(self) -> bool {
        !matches!(
            self,
            Self::Start(_)
                | Self::StartHost(_)
                | Self::Join(_)
                | Self::Resume(_)
                | Self::Plug(..)
                | Self::Loss(0)
                | Self::Duplicate(0)
        )
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(host) => write!(formatter, "kill {host}"),
            Self::Start(host) => write!(formatter, "start {host}"),
            Self::KillHost(host) => write!(formatter, "kill-host {host}"),
            Self::StartHost(host) => write!(formatter, "start-host {host}"),
            Self::Cut(host, true, true) => write!(formatter, "cut {host}"),
            Self::Cut(host, true, _) => write!(formatter, "cut {host} --in"),
            Self::Cut(host, ..) => write!(formatter, "cut {host} --out"),
            Self::Join(host) => write!(formatter, "heal {host}"),
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

/// What has a fault until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Host(Host),
    Cable(Host, Host),
    Loss,
    Duplicates,
}

/// The steps of a phase of so many milliseconds, in order of time.
pub(crate) fn draw(random: &mut Random, victims: Victims, span_ms: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut busy: BTreeMap<Place, u64> = BTreeMap::new();
    let mut at_ms = random.between(PAUSE_MS.0, PAUSE_MS.1);
    while at_ms < span_ms {
        busy.retain(|_, end_ms| *end_ms >= at_ms);
        let (place, fault, end, duration_ms) = draw_fault(random, victims);
        let is_node = |place: &Place| matches!(place, Place::Host(Host::Node(_)));
        let too_many =
            is_node(&place) && busy.keys().filter(|place| is_node(place)).count() >= NODES_AWAY_MAX;
        if !busy.contains_key(&place) && !too_many {
            let end_ms = (at_ms + duration_ms).min(span_ms);
            busy.insert(place, end_ms);
            let step = |at_ms, deed| Step { at: Duration::from_millis(at_ms), deed };
            steps.push(step(at_ms, fault));
            steps.extend(end.map(|end| step(end_ms, end)));
        }
        at_ms += random.between(PAUSE_MS.0, PAUSE_MS.1);
    }
    steps.sort_by_key(|step| step.at);
    steps
}

/// A number below 16, or that of a fault of etcd, from there, or of a trunk, from 20, or of a cable between switches, from 22.
fn draw_kind(random: &mut Random, victims: Victims) -> u64 {
    let of_etcd = if victims.has_etcd { 4 } else { 0 };
    let of_trunks = match victims.layout.links().len() {
        0 => 0,
        links if is_redundant(victims.layout, links) => 5,
        _ => 2,
    };
    let kind = random.below(16 + of_etcd + of_trunks);
    if kind >= 16 + of_etcd { kind + 4 - of_etcd } else { kind }
}

fn is_redundant(layout: Layout, links: usize) -> bool {
    links >= layout.switches().count()
}

/// Where, what, how it ends, and after how long.
type Fault = (Place, Deed, Option<Deed>, u64);

fn draw_fault(random: &mut Random, victims: Victims) -> Fault {
    let kind = draw_kind(random, victims);
    if kind >= 22 {
        let (one, other) = random.pick(&victims.layout.links());
        let duration_ms = random.between(50, 3_000);
        return (
            Place::Cable(one, other),
            Deed::Unplug(one, other),
            Some(Deed::Plug(one, other)),
            duration_ms,
        );
    }
    draw_fault_of(kind, random, victims)
}

/// Of a host, or everywhere.
fn draw_fault_of(kind: u64, random: &mut Random, victims: Victims) -> Fault {
    let Victims { nodes, fabric, instances, layout, .. } = victims;
    let switches = layout.switches().count() as u64;
    let node = Host::Node(random.below(nodes.into()) as u8);
    let number = random.below(instances.into()) as u8;
    let (instance, member) = (Host::of_instance(number), Host::Etcd(number));
    let directions = random.pick(&[(true, true), (true, false), (false, true)]);
    let of = |host, fault: Deed, end: Deed, duration_ms| (Place::Host(host), fault, Some(end), duration_ms);
    let further = (switches > 1).then(|| Host::FurtherSwitch(1 + random.below(switches - 1) as u8));
    let switch = match (fabric, further) {
        (Fabric::Switch, None) => Host::Switch,
        (Fabric::Switch, Some(further)) => random.pick(&[Host::Switch, further]),
        // Of a node or of a client: their faults are those of the host.
        (Fabric::Plain, _) => random.pick(&[node, node, Host::Client(0), Host::Client(1)]),
    };
    let edge = switch.edge().unwrap_or(switch);
    match kind {
        0..2 if fabric == Fabric::Plain => {
            of(node, Deed::KillHost(node), Deed::StartHost(node), random.between(50, 3_000))
        }
        12 if fabric == Fabric::Plain => {
            of(switch, Deed::Kill(edge), Deed::Start(edge), random.between(50, 1_000))
        }
        13 => of(switch, Deed::Pause(edge), Deed::Resume(edge), random.between(20, 1_000)),
        0..4 => of(node, Deed::Kill(node), Deed::Start(node), random.between(50, 3_000)),
        4..7 => {
            of(node, Deed::Cut(node, directions.0, directions.1), Deed::Join(node), random.between(50, 3_000))
        }
        7..10 => of(node, Deed::Pause(node), Deed::Resume(node), random.between(20, 1_500)),
        10 => of(instance, Deed::Kill(instance), Deed::Start(instance), random.between(20, 1_000)),
        11 => of(instance, Deed::Pause(instance), Deed::Resume(instance), random.between(20, 1_500)),
        12 => (Place::Host(switch), Deed::RestartSwitch(switch), None, 500),
        14 => {
            (Place::Loss, Deed::Loss(random.between(1, 20)), Some(Deed::Loss(0)), random.between(200, 3_000))
        }
        16 => of(member, Deed::Kill(member), Deed::Start(member), random.between(50, 3_000)),
        17 | 18 => of(member, Deed::Pause(member), Deed::Resume(member), random.between(50, 3_000)),
        // With its member of etcd.
        19 => of(
            instance,
            Deed::Cut(instance, directions.0, directions.1),
            Deed::Join(instance),
            random.between(50, 3_000),
        ),
        // All that is behind a trunk.
        20 | 21 => of(
            further.unwrap_or(node),
            Deed::Cut(further.unwrap_or(node), directions.0, directions.1),
            Deed::Join(further.unwrap_or(node)),
            random.between(50, 1_500),
        ),
        _ => {
            let percent = random.between(5, 50);
            (
                Place::Duplicates,
                Deed::Duplicate(percent),
                Some(Deed::Duplicate(0)),
                random.between(200, 3_000),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::layout::Shape;

    #[test]
    fn faults_overlap_within_bounds_end_in_time_and_come_from_the_seed() {
        let (mut most_away, mut kinds) = (0, BTreeSet::new());
        let control = [(1, false), (3, true)].into_iter().cycle();
        let tree = |switches| Layout::new(Shape::Tree, switches, 5);
        let fabrics = [
            (Fabric::Switch, tree(1)),
            (Fabric::Switch, tree(3)),
            (Fabric::Plain, tree(1)),
            (Fabric::Switch, Layout::new(Shape::Turbokv, 1, 5)),
            (Fabric::Plain, tree(1)),
        ];
        let fabrics = fabrics.into_iter().cycle();
        for (seed, ((fabric, layout), (instances, has_etcd))) in (0..400).zip(fabrics.zip(control)) {
            let victims = Victims { nodes: 5, fabric, instances, has_etcd, layout };
            let steps = draw(&mut Random::new(seed), victims, 10_000);
            assert_eq!(steps, draw(&mut Random::new(seed), victims, 10_000));
            let (mut away, mut lasting) = (BTreeSet::new(), 0i32);
            for Step { at, deed } in steps {
                assert!(at <= Duration::from_millis(10_000));
                kinds.insert(deed.to_string().split(' ').next().unwrap().to_owned());
                lasting += match deed {
                    Deed::RestartSwitch(_) => 0,
                    deed if deed.is_fault() => 1,
                    _ => -1,
                };
                match deed {
                    Deed::Kill(host) | Deed::KillHost(host) | Deed::Cut(host, ..) | Deed::Pause(host) => {
                        assert!(away.insert(host), "{host} has two faults at once");
                    }
                    Deed::Start(host) | Deed::StartHost(host) | Deed::Join(host) | Deed::Resume(host) => {
                        assert!(away.remove(&host), "{host} has no fault that could end");
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
    }
}
