//! Every fault at every point of a short run of a whole cluster: alone, and together with every
//! other.
//!
//! ```text
//!   ── begun ──┬──────┬──────┬── point ──┬─ … ── at rest ── judged
//!              │      │      └ fault ────┴─ … ── at rest ── judged          singles
//!              │      └ fault ── point ── second fault ── … ── judged       pairs
//!              └ crash ── point ── crash ── point ── crash ── … ── judged   triples
//! ```
//!
//! All durations are fixed, so a run is determined by its faults. A *point* is an event at a node
//! or at the metadata service that carries information: a datagram arrives (other than heartbeats,
//! leases and probes), a frame of a copying stream, tables, a disk completion. Just before this
//! event its host is crashed for long (and loses what is not synced) or restarted at once, paused,
//! or cut off inwards, outwards or both ways; each fault heals by itself after [`FAULT_NS`]. The
//! common beginning of several runs is executed once: the cluster is cloned at each point.
//!
//! Which runs there are:
//! * singles: every fault at every point until the script's run is at rest;
//! * pairs: after every single, every fault at every point until the cluster is at rest again, at
//!   most [`SECOND_NS`] later;
//! * triples: after every pair of crashes, a third crash at every point until the cluster is at
//!   rest again, at most [`THIRD_NS`] later.

mod scripts;

pub use scripts::{SCRIPTS, Script};

use crate::cluster::{Cluster, Direction, Fault, Seen, What};
use crate::judge::{self, Report};
use crate::network::Host;
use crate::node::Kept;
use nicekv_proto::Datagram;
use std::fmt;

const MILLISECOND_NS: u64 = 1_000_000;
/// Duration of a fault: longer than it takes to suspect a node and to remove it.
pub const FAULT_NS: u64 = 250 * MILLISECOND_NS;
/// Maximum time between the first and the second fault.
pub const SECOND_NS: u64 = 600 * MILLISECOND_NS;
/// Maximum time between the second and the third crash.
pub const THIRD_NS: u64 = 200 * MILLISECOND_NS;
/// Minimum duration of a script: until all members know that all hold its decisions.
const LOOKED_AT_NS: u64 = 30 * MILLISECOND_NS;
/// Downtime of a process that is restarted at once.
const RESTART_NS: u64 = 10 * MILLISECOND_NS;
/// Time until another metadata leader takes over from a paused one.
const TAKEOVER_NS: u64 = 30 * MILLISECOND_NS;

/// A kind of fault of a host at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Crash,
    Restart,
    Pause,
    CutIn,
    CutOut,
    Cut,
}

const KINDS: [(Kind, &str); 6] = [
    (Kind::Crash, "crash"),
    (Kind::Restart, "restart"),
    (Kind::Pause, "pause"),
    (Kind::CutIn, "cut-in"),
    (Kind::CutOut, "cut-out"),
    (Kind::Cut, "cut"),
];

/// A fault at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedFault {
    /// Number of events before it.
    pub event: u64,
    /// The fault, which hits the host of the next event.
    pub kind: Kind,
}

impl fmt::Display for PlacedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, name) = KINDS.iter().find(|(kind, _)| *kind == self.kind).expect("all are listed");
        write!(f, "{}.{name}", self.event)
    }
}

/// Which runs an enumeration visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Whether to visit pairs: one in this many second points; 1 visits all.
    pub pairs: Option<u64>,
    /// The same for triples.
    pub triples: Option<u64>,
}

/// Totals of an enumeration.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub points: u64,
    pub singles: u64,
    pub pairs: u64,
    pub triples: u64,
    /// Events of all runs. A common beginning counts once.
    pub events: u64,
    /// The first violation, and the faults that lead to it.
    pub violation: Option<(String, Vec<PlacedFault>)>,
}

/// A run under way.
#[derive(Clone)]
struct Run {
    cluster: Cluster,
    faults: Vec<PlacedFault>,
    /// When all cuts are healed.
    mended_ns: u64,
}

/// Visits all runs of a script, up to the first violation.
pub fn enumerate(script: &Script, depth: Depth) -> Counts {
    let run = Run { cluster: script.begin(), faults: Vec::new(), mended_ns: 0 };
    let mut visitor = Visitor { depth, counts: Counts::default(), skipped: 0 };
    let end_ns = run.cluster.now_ns() + SECOND_NS;
    visitor.visit(run, end_ns);
    visitor.counts
}

/// Runs a script with these faults, and judges it.
///
/// # Errors
/// A fault is not placed at a point.
pub fn replay(script: &Script, faults: &[PlacedFault], print: Option<fn(&str)>) -> Result<Report, String> {
    let mut run = Run { cluster: script.begin(), faults: Vec::new(), mended_ns: 0 };
    if let Some(print) = print {
        run.cluster.trace(print);
    }
    for fault in faults {
        while run.cluster.tally().events < fault.event {
            run.step();
        }
        let host = run.point().ok_or_else(|| format!("event {} is no point", fault.event))?;
        run.inject(host, fault.kind);
    }
    Ok(run.judge())
}

/// Parses faults in their printed form, joined by `+`.
pub fn parse_faults(text: &str) -> Option<Vec<PlacedFault>> {
    let fault = |text: &str| {
        let (event, name) = text.split_once('.')?;
        let (kind, _) = KINDS.iter().find(|(_, known)| *known == name)?;
        Some(PlacedFault { event: event.parse().ok()?, kind: *kind })
    };
    text.split('+').map(fault).collect()
}

struct Visitor {
    depth: Depth,
    counts: Counts,
    skipped: u64,
}

impl Visitor {
    /// Continues `run` to its end, and branches off a fault at each point before `end_ns`.
    fn visit(&mut self, mut run: Run, end_ns: u64) {
        let (began_events, depth) = (run.cluster.tally().events, run.faults.len());
        let rest_ns = run.cluster.now_ns() + LOOKED_AT_NS;
        loop {
            if let Some(host) = run.point()
                && self.is_wanted(depth)
            {
                self.counts.points += u64::from(depth == 0);
                self.branch(&run, host);
            }
            if self.counts.violation.is_some()
                || run.cluster.now_ns() > end_ns
                || (run.cluster.now_ns() > rest_ns && run.is_at_rest())
            {
                break;
            }
            run.step();
        }
        self.counts.events += run.cluster.tally().events - began_events;
        self.finish(run);
    }

    fn branch(&mut self, run: &Run, host: Host) {
        let depth = run.faults.len() + 1;
        for (kind, _) in KINDS {
            let crashes = |faults: &[PlacedFault]| faults.iter().all(|fault| fault.kind == Kind::Crash);
            let may_go_deeper = match depth {
                1 => self.depth.pairs.is_some(),
                2 => self.depth.triples.is_some() && kind == Kind::Crash && crashes(&run.faults),
                _ => false,
            };
            if self.counts.violation.is_some() || (depth == 3 && kind != Kind::Crash) {
                return;
            }
            let mut branch = run.clone();
            branch.inject(host, kind);
            let now_ns = branch.cluster.now_ns();
            match (depth, may_go_deeper) {
                (_, false) => self.finish(branch),
                (1, true) => self.visit(branch, now_ns + SECOND_NS),
                (_, true) => self.visit(branch, now_ns + THIRD_NS),
            }
        }
    }

    /// Whether to visit this point after `depth` faults: one in a fixed number of points is
    /// visited.
    fn is_wanted(&mut self, depth: usize) -> bool {
        let every = match depth {
            0 => Some(1),
            1 => self.depth.pairs,
            2 => self.depth.triples,
            _ => None,
        };
        self.skipped += 1;
        every.is_some_and(|every| self.skipped.is_multiple_of(every))
    }

    fn finish(&mut self, run: Run) {
        match run.faults.len() {
            0 => {}
            1 => self.counts.singles += 1,
            2 => self.counts.pairs += 1,
            _ => self.counts.triples += 1,
        }
        let (began_events, faults) = (run.cluster.tally().events, run.faults.clone());
        let report = run.judge();
        self.counts.events += report.tally.events - began_events;
        if let Some(violation) = report.violations.into_iter().next() {
            self.counts.violation = Some((violation, faults));
        }
    }
}

impl Run {
    /// The host of the next event, if the event is a point.
    fn point(&self) -> Option<Host> {
        let seen = self.cluster.next(u64::MAX)?;
        is_news(seen).then_some(seen.host)
    }

    fn step(&mut self) {
        self.cluster.step();
        if self.mended_ns > 0 && self.cluster.now_ns() >= self.mended_ns {
            self.mended_ns = 0;
            self.cluster.inject(Fault::Mend);
        }
    }

    fn inject(&mut self, host: Host, kind: Kind) {
        self.faults.push(PlacedFault { event: self.cluster.tally().events, kind });
        let direction = match kind {
            Kind::CutIn => Direction::In,
            Kind::CutOut => Direction::Out,
            Kind::Cut => Direction::Both,
            Kind::Crash | Kind::Restart | Kind::Pause => {
                return self.cluster.inject(stop(host, kind));
            }
        };
        self.mended_ns = self.cluster.now_ns() + FAULT_NS;
        self.cluster.inject(Fault::CutOff { host, direction });
    }

    /// Whether no work is left, and all faults have healed.
    fn is_at_rest(&self) -> bool {
        const ASKED_EVERY: u64 = 16;
        self.mended_ns == 0
            && self.cluster.tally().events.is_multiple_of(ASKED_EVERY)
            && judge::is_at_rest(&self.cluster)
    }

    fn judge(mut self) -> Report {
        // Lets the faults that are left end by themselves.
        while self.mended_ns > 0 {
            self.step();
        }
        judge::finish(&mut self.cluster)
    }
}

fn stop(host: Host, kind: Kind) -> Fault {
    let downtime_ns = if kind == Kind::Crash { FAULT_NS } else { RESTART_NS };
    match (host, kind) {
        (Host::Node(node), Kind::Pause) => Fault::Pause { node, pause_ns: FAULT_NS },
        (Host::Node(node), _) => {
            let kept = if kind == Kind::Crash { Kept::Forced } else { Kept::All };
            Fault::Crash { node, kept, downtime_ns: Some(downtime_ns) }
        }
        (_, Kind::Pause) => Fault::MetadataPause { pause_ns: FAULT_NS, takeover_ns: TAKEOVER_NS },
        _ => Fault::MetadataCrash { downtime_ns },
    }
}

fn is_news(seen: Seen<'_>) -> bool {
    if !matches!(seen.host, Host::Node(_) | Host::Metadata) {
        return false;
    }
    match seen.what {
        What::Datagram { bytes, .. } => !matches!(
            Datagram::decode(bytes),
            Ok((
                _,
                Datagram::Heartbeat(_)
                    | Datagram::HeartbeatReply(_)
                    | Datagram::Probe(_)
                    | Datagram::ProbeReply(_)
            ))
        ),
        What::Frame(_) | What::Disk | What::Tables => true,
        What::Turn | What::Other => false,
    }
}
