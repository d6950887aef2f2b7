//! The controller of one switch: reads what it runs, and makes it run the program of its tables.
//!
//! ```text
//!   session ready ─▶ read flows and groups ─▶ Ready
//!
//!   set_tables ─▶ prepare ─ BARRIER ─▶ flip ─ BARRIER ─▶ clean ─ BARRIER ─▶ Installed
//!                    │ refused           │ refused           │ refused ─▶ read ─▶ Installed
//!                    ▼                   ▼
//!                 undo ─ BARRIER ─▶ read ─▶ Refused: the old program is in force
//!
//!              with bundles                            without
//!   prepare    open a bundle, fill it                  add the flows of the new generation
//!   flip       commit it                               table `generation` writes the new number
//!   clean      -                                       delete the flows of the old generation
//! ```
//!
//! Invariants:
//! - What the switch runs is read after each connection. A change sends only what differs, whoever
//!   wrote it, so a controller that died in the middle of a change leaves nothing behind.
//! - `Installed` comes after a BARRIER that follows the flip. A switch that caches decisions may follow
//!   the old program a little longer.
//! - A refused change leaves the old program in force as a whole.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use nicekv_proto::Now;
use nicekv_switch::TableSet;
use thiserror::Error;

use crate::program::{Changes, Fabric, Flow, FlowKey, Generation, Meaning, Program, Unsupported, compile};
use crate::session::{self, SendError, Session, SessionError, Switch, describe};
use crate::wire::{
    BUNDLE_ATOMIC, BUNDLE_ORDERED, BundleAdd, BundleStep, FlowStatus, GroupKind, GroupStatus, Match, Message,
    MeterCommand, MeterMod, MultipartRequest, PacketIn, Part, Port, PortChange, SwitchError, TABLE_ALL,
};

/// Type and code of the error for a meter that is there already.
const METER_EXISTS: (u16, u16) = (12, 1);

/// A controller's output for its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The switch has accepted this controller, and what it runs is known.
    Ready(Switch),
    /// The tables are in force.
    Installed,
    /// The switch has refused the tables. Those before are in force.
    Refused(String),
    /// The packets of each flow of the program in force.
    Counts(BTreeMap<FlowKey, u64>),
    /// A packet from an unknown station.
    Packet(PacketIn),
    Port {
        change: PortChange,
        port: Port,
    },
}

/// Why tables are not sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InstallError {
    #[error("the switch is not connected, or not read yet")]
    NotReady,
    #[error("another change is under way")]
    Busy,
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    #[error(transparent)]
    Send(#[from] SendError),
}

#[derive(Debug)]
enum Phase {
    /// The session is not ready.
    Connecting,
    Reading(Box<Reading>),
    Idle,
    Changing(Box<Change>),
}

/// The flows and groups of the switch are being read.
#[derive(Debug)]
struct Reading {
    /// The transactions, and the replies so far.
    flows: (u32, Option<Vec<FlowStatus>>),
    groups: (u32, Option<Vec<GroupStatus>>),
    /// The event that follows.
    then: Event,
}

/// A step of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Prepare,
    Flip,
    Clean,
    Undo,
}

#[derive(Debug)]
struct Change {
    /// The program that results.
    program: Program,
    changes: Changes,
    /// The bundle of the change, if the switch has bundles and something changes.
    bundle: Option<u32>,
    step: Step,
    /// The first transaction of this step, and the BARRIER behind the last.
    first: u32,
    barrier: u32,
    refused: Option<String>,
}

impl Change {
    fn covers(&self, transaction: u32) -> bool {
        transaction.wrapping_sub(self.first) <= self.barrier.wrapping_sub(self.first)
    }
}

/// The controller of one switch, over one connection.
#[derive(Debug)]
pub struct Controller {
    session: Session,
    phase: Phase,
    has_bundles: bool,
    /// The switch's program, as last read or installed.
    program: Program,
    /// The switch has flows or groups that cannot be compared with ours.
    is_foreign: bool,
    last_bundle: u32,
    counts: Option<u32>,
    events: VecDeque<Event>,
}

impl Controller {
    /// Begins over a new stream. `term`: of the leader for which the switch is controlled.
    pub fn new(now: Now, term: u64) -> Self {
        Self {
            session: Session::new(now, term),
            phase: Phase::Connecting,
            has_bundles: false,
            program: Program::default(),
            is_foreign: false,
            last_bundle: 0,
            counts: None,
            events: VecDeque::new(),
        }
    }

    pub fn handle_bytes(&mut self, now: Now, bytes: &[u8]) {
        self.session.handle_bytes(now, bytes);
        while let Some(event) = self.session.poll_event() {
            self.handle(event);
        }
    }

    pub fn handle_deadline(&mut self, now: Now) {
        self.session.handle_deadline(now);
    }

    pub fn next_deadline(&self) -> Option<u64> {
        self.session.next_deadline()
    }

    /// Bytes for the stream. The driver removes those that it has written.
    pub fn unsent(&mut self) -> &mut Vec<u8> {
        self.session.unsent()
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Why the session has failed, if it has.
    pub fn error(&self) -> Option<&SessionError> {
        self.session.error()
    }

    /// The program that the switch runs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Claims the switch for the leader of a newer term.
    pub fn claim(&mut self, term: u64) -> Result<(), SendError> {
        self.session.claim(term)
    }

    /// Whether a change may begin.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Begins to make the switch do what the tables say. [`Event::Installed`] or [`Event::Refused`] follows.
    pub fn set_tables(
        &mut self,
        fabric: &Fabric,
        tables: &TableSet,
        stations: &BTreeMap<[u8; 6], u16>,
    ) -> Result<(), InstallError> {
        match self.phase {
            Phase::Idle => {}
            Phase::Changing(_) => return Err(InstallError::Busy),
            Phase::Connecting | Phase::Reading { .. } => return Err(InstallError::NotReady),
        }
        let generation =
            if self.has_bundles { Generation::Bundled } else { Generation::unused(&self.program) };
        let program = compile(fabric, tables, stations, generation, &self.program)?;
        let before = if self.is_foreign { &Program::default() } else { &self.program };
        let mut changes = Changes::between(before, &program, generation);
        if self.is_foreign {
            changes.delete_all_before(generation);
        }
        if changes.is_empty() {
            self.program = program;
            self.events.push_back(Event::Installed);
            return Ok(());
        }
        let bundle = self.has_bundles && !changes.flip.is_empty();
        let bundle = bundle.then(|| {
            self.last_bundle = self.last_bundle.wrapping_add(1) & (u32::MAX >> 1);
            self.last_bundle
        });
        let step = Step::Prepare;
        self.send_step(Change { program, changes, bundle, step, first: 0, barrier: 0, refused: None })?;
        Ok(())
    }

    /// Requests the packets of each flow; [`Event::Counts`] follows.
    pub fn read_counts(&mut self) -> Result<(), SendError> {
        self.counts = Some(self.session.request(all_flows())?);
        Ok(())
    }

    fn handle(&mut self, event: session::Event) {
        match event {
            session::Event::Ready(switch) => {
                self.has_bundles = switch.has_bundles;
                self.read(Event::Ready(switch));
            }
            session::Event::Reply { transaction, part } => self.handle_reply(transaction, part),
            session::Event::Barrier { transaction } => self.handle_barrier(transaction),
            session::Event::Bundle { .. } => {}
            session::Event::Refused { transaction, error } => self.handle_refusal(transaction, &error),
            session::Event::Packet(packet) => self.events.push_back(Event::Packet(packet)),
            session::Event::Port { change, port } => self.events.push_back(Event::Port { change, port }),
        }
    }

    fn handle_reply(&mut self, transaction: u32, part: Part) {
        if self.counts == Some(transaction) {
            self.counts = None;
            if let Part::Flows(flows) = part {
                let counts = flows.into_iter().map(|flow| (key_of(&flow), flow.packets)).collect();
                self.events.push_back(Event::Counts(counts));
            }
            return;
        }
        let Phase::Reading(reading) = &mut self.phase else { return };
        match part {
            Part::Flows(flows) if reading.flows.0 == transaction => reading.flows.1 = Some(flows),
            Part::Groups(groups) if reading.groups.0 == transaction => reading.groups.1 = Some(groups),
            _ => return,
        }
        if reading.flows.1.is_some() && reading.groups.1.is_some() {
            self.finish_reading();
        }
    }

    /// Reads what the switch runs; `then` follows.
    fn read(&mut self, then: Event) {
        let flows = self.session.request(all_flows());
        let groups = self.session.request(MultipartRequest::Groups);
        // Fails only with the session, which then says why.
        if let (Ok(flows), Ok(groups)) = (flows, groups) {
            let reading = Reading { flows: (flows, None), groups: (groups, None), then };
            self.phase = Phase::Reading(Box::new(reading));
        }
    }

    fn finish_reading(&mut self) {
        let Phase::Reading(reading) = core::mem::replace(&mut self.phase, Phase::Idle) else { return };
        let flows = reading.flows.1.unwrap_or_default();
        let groups = reading.groups.1.unwrap_or_default();
        let group_count = groups.len();
        let is_known = !flows.iter().any(|flow| flow.matches.has_others())
            && groups.iter().all(|group| group.kind == GroupKind::All);
        self.program = Program {
            groups: groups.into_iter().map(|group| (group.buckets, group.group)).collect(),
            flows: flows.into_iter().map(flow_of).collect(),
            meters: BTreeMap::new(),
        };
        // Of two groups with equal buckets one is not ours.
        self.is_foreign = !is_known || self.program.groups.len() < group_count;
        self.events.push_back(reading.then);
    }

    /// Sends the messages of the change's step, and a BARRIER behind them.
    fn send_step(&mut self, mut change: Change) -> Result<(), SendError> {
        let (session, changes) = (&mut self.session, &change.changes);
        let mut sent = Vec::new();
        match (change.step, change.bundle) {
            (Step::Prepare, bundle) => {
                for message in &changes.prepare {
                    sent.push(session.send(message)?);
                    // Meters are not read from the switch: one that is there already gets its rate so.
                    if let Message::MeterMod(meter @ MeterMod { command: MeterCommand::Add, .. }) = message {
                        let set = MeterMod { command: MeterCommand::Modify, ..*meter };
                        sent.push(session.send(&Message::MeterMod(set))?);
                    }
                }
                if let Some(bundle) = bundle {
                    sent.push(session.bundle(bundle, BundleStep::OpenRequest)?);
                    for message in &changes.flip {
                        let (flags, message) = (BUNDLE_ATOMIC | BUNDLE_ORDERED, Box::new(message.clone()));
                        sent.push(session.send(&Message::BundleAdd(BundleAdd { bundle, flags, message }))?);
                    }
                }
            }
            (Step::Flip, Some(bundle)) => sent.push(session.bundle(bundle, BundleStep::CommitRequest)?),
            (Step::Undo, Some(bundle)) => sent.push(session.bundle(bundle, BundleStep::DiscardRequest)?),
            (Step::Flip, None) => send_all(session, &changes.flip, &mut sent)?,
            (Step::Undo, None) => send_all(session, &changes.undo, &mut sent)?,
            (Step::Clean, _) => send_all(session, &changes.clean, &mut sent)?,
        }
        change.barrier = session.barrier()?;
        change.first = sent.first().copied().unwrap_or(change.barrier);
        self.phase = Phase::Changing(Box::new(change));
        Ok(())
    }

    fn handle_refusal(&mut self, transaction: u32, error: &SwitchError) {
        if self.counts == Some(transaction) {
            self.counts = None;
            return;
        }
        let Phase::Changing(change) = &mut self.phase else { return };
        let is_of_step = change.covers(transaction) && (error.kind, error.code) != METER_EXISTS;
        if is_of_step && change.refused.is_none() {
            change.refused = Some(describe(error));
        }
    }

    fn handle_barrier(&mut self, transaction: u32) {
        let change = match core::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Changing(change) if change.barrier == transaction => change,
            other => {
                self.phase = other;
                return;
            }
        };
        let mut change = *change;
        let refused = change.refused.take();
        match (change.step, refused) {
            (Step::Prepare, None) => change.step = Step::Flip,
            (Step::Flip, None) => {
                self.program = change.program.clone();
                self.is_foreign = false;
                if change.changes.clean.is_empty() {
                    self.events.push_back(Event::Installed);
                    return;
                }
                change.step = Step::Clean;
            }
            (Step::Prepare | Step::Flip, refused) => {
                change.refused = refused;
                change.step = Step::Undo;
            }
            (Step::Clean, None) => {
                self.events.push_back(Event::Installed);
                return;
            }
            // Something of the old program is still there, which no packet reaches.
            (Step::Clean, Some(_)) => return self.read(Event::Installed),
            (Step::Undo, refused) => return self.read(Event::Refused(refused.unwrap_or_default())),
        }
        // Fails only with the session, which then says why.
        let _ = self.send_step(change);
    }
}

fn all_flows() -> MultipartRequest {
    MultipartRequest::Flows { table: TABLE_ALL, cookie: 0, cookie_mask: 0, matches: Match::default() }
}

fn key_of(flow: &FlowStatus) -> FlowKey {
    FlowKey { table: flow.table, priority: flow.priority, matches: flow.matches.clone() }
}

fn flow_of(flow: FlowStatus) -> (FlowKey, Flow) {
    (key_of(&flow), Flow { instructions: flow.instructions, meaning: Meaning::Uncounted })
}

fn send_all(session: &mut Session, messages: &[Message], sent: &mut Vec<u32>) -> Result<(), SendError> {
    for message in messages {
        sent.push(session.send(message)?);
    }
    Ok(())
}
