//! The stream between the metadata controller and a switch agent.
//!
//! ```text
//!  controller                                 agent
//!      │ Install{term, tables} ────────────────▶│  term < the newest seen: Refused
//!      │                                        │  generation < installed in this term: Failed
//!      │                                        │  validate, build, flip (make-before-break)
//!      │◀──────────── Installed{term, generation}│  no packet goes by the old tables any more
//!      │◀──────────── Failed{generation, reason} │  the old tables are in force
//!      │ Update{term, base, one table} ────────▶│  base is not what this term installed: Failed; else as Install
//!      │ Read, Write, ResetRegister{term} ─────▶│
//!      │◀──────────────── Register{cells} ──────│
//!      │ Status{term} ─────────────────────────▶│
//!      │◀─────────── Status{generation, tables…} │
//! ```
//!
//! Invariants: requests of older terms change nothing (R13), and a request of a newer term fences the older
//! ones off even if it fails; within a term the generation never goes back; a request may be repeated (a lost
//! answer): the same tables under the same generation are answered alike. A started agent has no tables and
//! its switch drops vring traffic until the first install. A term is obeyed only after it is remembered
//! ([`TermMemory`]), so that the agent's own restart brings no older controller back. Messages are postcard, one
//! per frame of the stream; bytes after a message are an error.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::plant::Plant;
use crate::{Backend, BackendError, Counters, Register, TableSet, TableStatus, TableUpdate};

/// The longest encoded message. Tables at capacity take about 0.8 MB.
pub const CONTROL_MESSAGE_BYTES_MAX: usize = 1 << 20;

/// From the controller to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlRequest {
    /// Replace all tables.
    Install {
        /// Term of the controller's leadership.
        term: u64,
        /// The new generation.
        tables: TableSet,
    },
    /// Change one table of the generation that was installed in this term.
    Update {
        /// Term of the controller's leadership.
        term: u64,
        /// The change, and the generation that it leads to.
        update: TableUpdate,
    },
    /// Report.
    Status {
        /// Term of the controller's leadership.
        term: u64,
    },
    /// Report all cells of a register.
    ReadRegister {
        /// Term of the controller's leadership.
        term: u64,
        /// Which.
        register: Register,
    },
    /// Set a cell of a register, then report all.
    WriteRegister {
        /// Term of the controller's leadership.
        term: u64,
        /// Which.
        register: Register,
        /// Its place in the register.
        cell: u32,
        /// What it holds from now on.
        value: u64,
    },
    /// Report all cells of a register, and set them to zero.
    ResetRegister {
        /// Term of the controller's leadership.
        term: u64,
        /// Which.
        register: Register,
    },
}

impl ControlRequest {
    /// Term of the controller's leadership.
    pub fn term(&self) -> u64 {
        match self {
            Self::Install { term, .. }
            | Self::Update { term, .. }
            | Self::Status { term }
            | Self::ReadRegister { term, .. }
            | Self::WriteRegister { term, .. }
            | Self::ResetRegister { term, .. } => *term,
        }
    }
}

/// From the agent to the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlReply {
    /// The tables are in force, and no packet is on its way by older ones.
    Installed {
        /// As in the request.
        term: u64,
        /// The generation in force.
        generation: u64,
    },
    /// A newer controller was here.
    Refused {
        /// Its term.
        current_term: u64,
    },
    /// The tables could not be installed; those before them are in force.
    Failed {
        /// Generation of the request.
        generation: u64,
        /// For the operator.
        reason: String,
    },
    /// A report.
    Status {
        /// Newest term seen, that of the request included.
        term: u64,
        /// The generation in force; `None` before the first install.
        generation: Option<u64>,
        /// Fill and hits per table.
        tables: Vec<TableStatus>,
        /// Global counters.
        counters: Counters,
    },
    /// The cells of a register; of one that was reset, as they were before.
    Register {
        /// Which.
        register: Register,
        /// Its cells.
        cells: Vec<u64>,
    },
}

/// Why bytes are no control message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ControlError {
    /// Longer than [`CONTROL_MESSAGE_BYTES_MAX`].
    #[error("control message of {bytes} bytes, the limit is {CONTROL_MESSAGE_BYTES_MAX}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Not an encoding of the expected message.
    #[error("malformed control message: {0}")]
    Malformed(postcard::Error),
    /// A message with something behind it.
    #[error("{bytes} bytes after a control message")]
    TrailingBytes {
        /// How many.
        bytes: usize,
    },
}

/// Encodes a request or a reply.
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, ControlError> {
    let bytes = postcard::to_allocvec(message).map_err(ControlError::Malformed)?;
    check_length(&bytes)?;
    Ok(bytes)
}

/// Decodes a request or a reply that fills `bytes` exactly.
pub fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, ControlError> {
    check_length(bytes)?;
    match postcard::take_from_bytes(bytes).map_err(ControlError::Malformed)? {
        (message, []) => Ok(message),
        (_, rest) => Err(ControlError::TrailingBytes { bytes: rest.len() }),
    }
}

fn check_length(bytes: &[u8]) -> Result<(), ControlError> {
    if bytes.len() > CONTROL_MESSAGE_BYTES_MAX {
        return Err(ControlError::TooLong { bytes: bytes.len() });
    }
    Ok(())
}

/// Where an agent keeps the newest term over its restarts.
pub trait TermMemory {
    /// Keeps `term` for good before it returns; the error is one line.
    fn remember(&mut self, term: u64) -> Result<(), String>;
}

/// The memory of an agent without one, which is told by whoever starts it what it has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMemory;

impl TermMemory for NoMemory {
    fn remember(&mut self, _term: u64) -> Result<(), String> {
        Ok(())
    }
}

impl<M: TermMemory> TermMemory for Option<M> {
    fn remember(&mut self, term: u64) -> Result<(), String> {
        self.as_mut().map_or(Ok(()), |memory| memory.remember(term))
    }
}

/// The switch's side of the stream: one back end, the newest term, what is installed.
#[derive(Clone, Debug)]
pub struct SwitchAgent<B, M = NoMemory> {
    backend: B,
    memory: M,
    term: u64,
    installed: Option<Installed>,
    /// Always `None` outside tests.
    plant: Option<Plant>,
    #[cfg(any(test, feature = "exploration"))]
    owed: Option<TableSet>,
}

#[derive(Clone, Debug)]
struct Installed {
    term: u64,
    tables: TableSet,
}

impl<B: Backend> SwitchAgent<B> {
    /// An agent of a back end without tables. `term`: the newest term that this switch remembers to have
    /// seen, 0 if it remembers none.
    pub fn new(backend: B, term: u64) -> Self {
        Self::with_memory(backend, term, NoMemory)
    }
}

impl<B: Backend, M: TermMemory> SwitchAgent<B, M> {
    /// An agent of a back end without tables. `term`: the one in `memory`.
    pub fn with_memory(backend: B, term: u64, memory: M) -> Self {
        Self {
            backend,
            memory,
            term,
            installed: None,
            plant: None,
            #[cfg(any(test, feature = "exploration"))]
            owed: None,
        }
    }

    /// The newest term seen.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// The generation in force.
    pub fn generation(&self) -> Option<u64> {
        self.installed.as_ref().map(|installed| installed.tables.generation)
    }

    /// The back end, to process packets with.
    pub fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    /// Carries out one request.
    pub fn handle(&mut self, request: ControlRequest) -> ControlReply {
        #[cfg(any(test, feature = "exploration"))]
        self.install_owed();
        let term = request.term();
        if term < self.term && !self.has(Plant::OlderTermObeyed) {
            return ControlReply::Refused { current_term: self.term };
        }
        if let Err(reason) = self.obey(term) {
            let generation = match &request {
                ControlRequest::Install { tables, .. } => tables.generation,
                ControlRequest::Update { update, .. } => update.generation,
                _ => self.generation().unwrap_or(0),
            };
            return ControlReply::Failed { generation, reason };
        }
        match request {
            ControlRequest::Install { tables, .. } => self.install(tables),
            ControlRequest::Update { update, .. } => self.update(&update),
            ControlRequest::Status { .. } => self.status(),
            ControlRequest::ReadRegister { register, .. } => self.register(register, |_| Ok(())),
            ControlRequest::WriteRegister { register, cell, value, .. } => {
                match self.backend.write_register(register, cell, value) {
                    Ok(()) => self.register(register, |_| Ok(())),
                    Err(error) => self.failed(&error),
                }
            }
            ControlRequest::ResetRegister { register, .. } => {
                self.register(register, |backend| backend.reset_register(register))
            }
        }
    }

    /// Changes one table. A change that has been made already is not made again.
    fn update(&mut self, update: &TableUpdate) -> ControlReply {
        let (term, generation) = (self.term, update.generation);
        let installed = self.installed.as_ref().filter(|installed| installed.term == term);
        if installed.is_some_and(|installed| update.is_applied(&installed.tables)) {
            return ControlReply::Installed { term, generation };
        }
        if generation <= update.base {
            let reason = format!("generation {generation} does not follow {}", update.base);
            return ControlReply::Failed { generation, reason };
        }
        let made = update
            .applied_to(installed.map(|installed| &installed.tables))
            .map_err(BackendError::from)
            .and_then(|tables| self.backend.update(update).map(|()| tables));
        match made {
            Ok(tables) => {
                self.installed = Some(Installed { term, tables });
                ControlReply::Installed { term, generation }
            }
            Err(error) => ControlReply::Failed { generation, reason: error.to_string() },
        }
    }

    /// What a register holds before `then`.
    fn register(
        &mut self,
        register: Register,
        then: impl FnOnce(&mut B) -> Result<(), BackendError>,
    ) -> ControlReply {
        let cells = self.backend.read_register(register);
        match cells.and_then(|cells| then(&mut self.backend).map(|()| cells)) {
            Ok(cells) => ControlReply::Register { register, cells },
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&self, error: &BackendError) -> ControlReply {
        ControlReply::Failed { generation: self.generation().unwrap_or(0), reason: error.to_string() }
    }

    fn has(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    /// Breaks a rule from now on.
    #[cfg(any(test, feature = "exploration"))]
    pub fn plant(&mut self, plant: Plant) {
        self.plant = Some(plant);
    }

    /// What was acknowledged before it was installed.
    #[cfg(any(test, feature = "exploration"))]
    fn install_owed(&mut self) {
        if let Some(owed) = self.owed.take() {
            let _too_late_to_say = self.backend.install(&owed);
        }
    }

    /// Fences older terms off. A term that could not be remembered is not obeyed, and fences nobody off: after a
    /// restart it would not either.
    fn obey(&mut self, term: u64) -> Result<(), String> {
        if term > self.term {
            self.memory.remember(term)?;
            self.term = term;
        }
        Ok(())
    }

    fn install(&mut self, tables: TableSet) -> ControlReply {
        let (term, generation) = (self.term, tables.generation);
        if let Some(installed) = self.installed.as_ref().filter(|installed| installed.term == term) {
            let current = installed.tables.generation;
            if generation == current && TableSet::diff(&installed.tables, &tables).is_empty() {
                return ControlReply::Installed { term, generation };
            }
            if generation <= current {
                let reason = format!("generation {generation} does not follow the installed {current}");
                return ControlReply::Failed { generation, reason };
            }
        }
        #[cfg(any(test, feature = "exploration"))]
        if self.has(Plant::AckBeforeInstalled) {
            self.owed = Some(tables.clone());
            self.installed = Some(Installed { term, tables });
            return ControlReply::Installed { term, generation };
        }
        match self.backend.install(&tables) {
            Ok(()) => {
                self.installed = Some(Installed { term, tables });
                ControlReply::Installed { term, generation }
            }
            Err(error) => ControlReply::Failed { generation, reason: error.to_string() },
        }
    }

    fn status(&self) -> ControlReply {
        match (self.backend.table_status(), self.backend.counters()) {
            (Ok(tables), Ok(counters)) => {
                ControlReply::Status { term: self.term, generation: self.generation(), tables, counters }
            }
            (Err(error), _) | (_, Err(error)) => self.failed(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        DivisionEntry, Host, HostId, HostRole, MemberSet, MulticastEntry, Prefix, Route, Router,
        UnicastEntry, VringConfig,
    };

    fn tables(generation: u64, host: u8) -> TableSet {
        TableSet {
            generation,
            hosts: vec![Host {
                id: HostId(host.into()),
                role: HostRole::Node,
                ip: [10, 0, 0, host],
                udp_port: 7000,
                mac: [2, 0, 0, 0, 0, host],
                port: host.into(),
            }],
            unicast: vec![UnicastEntry {
                destination: VringConfig::DEFAULT.unicast,
                partition: 0,
                host: HostId(host.into()),
            }],
            ..TableSet::default()
        }
    }

    fn agent() -> SwitchAgent<Router> {
        SwitchAgent::new(Router::new(VringConfig::DEFAULT).unwrap(), 0)
    }

    fn routed_to(agent: &mut SwitchAgent<Router>) -> Option<u16> {
        match agent.backend_mut().route([10, 0, 0, 9], [10, 10, 0, 1], None) {
            Route::Unicast(host) => Some(host.0),
            Route::Miss => None,
            route => panic!("{route:?}"),
        }
    }

    #[test]
    fn older_terms_and_generations_are_refused() {
        let mut agent = agent();
        assert_eq!(routed_to(&mut agent), None, "nothing is installed at start");
        let install =
            |term, generation, host| ControlRequest::Install { term, tables: tables(generation, host) };
        assert_eq!(agent.handle(install(5, 7, 1)), ControlReply::Installed { term: 5, generation: 7 });
        assert_eq!(agent.handle(install(4, 9, 2)), ControlReply::Refused { current_term: 5 });
        assert_eq!(
            agent.handle(ControlRequest::Status { term: 4 }),
            ControlReply::Refused { current_term: 5 }
        );
        assert!(matches!(agent.handle(install(5, 6, 2)), ControlReply::Failed { generation: 6, .. }));
        assert!(matches!(agent.handle(install(5, 7, 2)), ControlReply::Failed { generation: 7, .. }));
        assert_eq!(routed_to(&mut agent), Some(1));
        // The answer was lost, the request comes again.
        assert_eq!(agent.handle(install(5, 7, 1)), ControlReply::Installed { term: 5, generation: 7 });
        // A newer controller may count anew, and fences the older one off by asking alone.
        assert!(matches!(
            agent.handle(ControlRequest::Status { term: 6 }),
            ControlReply::Status { term: 6, generation: Some(7), .. }
        ));
        assert_eq!(agent.handle(install(5, 8, 2)), ControlReply::Refused { current_term: 6 });
        assert_eq!(agent.handle(install(6, 1, 2)), ControlReply::Installed { term: 6, generation: 1 });
        assert_eq!(routed_to(&mut agent), Some(2));
    }

    #[test]
    fn a_failed_install_leaves_the_old_tables_in_force() {
        let mut agent = agent();
        agent.handle(ControlRequest::Install { term: 1, tables: tables(1, 1) });
        let mut full = tables(2, 2);
        full.unicast = vec![full.unicast[0]; 4097];
        let reply = agent.handle(ControlRequest::Install { term: 1, tables: full });
        let ControlReply::Failed { generation: 2, reason } = reply else { panic!("{reply:?}") };
        assert!(reason.contains("unicast_vring") && reason.contains("4096"), "{reason}");
        assert_eq!((routed_to(&mut agent), agent.generation()), (Some(1), Some(1)));
        let reply = agent.handle(ControlRequest::Install { term: 1, tables: tables(2, 2) });
        assert_eq!(reply, ControlReply::Installed { term: 1, generation: 2 });
        assert_eq!(routed_to(&mut agent), Some(2));
    }

    #[test]
    fn a_restarted_agent_keeps_the_term_it_is_given() {
        let mut agent = SwitchAgent::new(Router::new(VringConfig::DEFAULT).unwrap(), 9);
        let request = ControlRequest::Install { term: 8, tables: tables(1, 1) };
        assert_eq!(agent.handle(request), ControlReply::Refused { current_term: 9 });
    }

    #[test]
    fn an_update_follows_what_the_same_term_installed_and_may_be_repeated() {
        let mut agent = agent();
        let update = |base, generation, host| {
            let to = tables(generation, host);
            let from = TableSet { generation: base, hosts: to.hosts.clone(), ..TableSet::default() };
            TableUpdate::between(&from, &to).expect("one table differs")
        };
        let request = |term, update| ControlRequest::Update { term, update };
        let failed = |reply| matches!(reply, ControlReply::Failed { .. });
        assert!(failed(agent.handle(request(5, update(7, 8, 1)))), "nothing is installed");
        let empty = TableSet { unicast: vec![], ..tables(7, 1) };
        agent.handle(ControlRequest::Install { term: 5, tables: empty });
        assert!(failed(agent.handle(request(5, update(7, 7, 1)))), "the generation must rise");
        for _ in 0..2 {
            let reply = agent.handle(request(5, update(7, 8, 1)));
            assert_eq!(reply, ControlReply::Installed { term: 5, generation: 8 });
            assert_eq!((routed_to(&mut agent), agent.generation()), (Some(1), Some(8)));
        }
        // The same as a whole is no news, either.
        let whole = ControlRequest::Install { term: 5, tables: tables(8, 1) };
        assert_eq!(agent.handle(whole), ControlReply::Installed { term: 5, generation: 8 });
        assert!(failed(agent.handle(request(5, update(8, 9, 2)))), "that host is not there");
        assert!(failed(agent.handle(request(6, update(8, 9, 1)))), "another term has installed nothing");
        assert_eq!(agent.handle(request(5, update(8, 9, 1))), ControlReply::Refused { current_term: 6 });
        assert_eq!((routed_to(&mut agent), agent.generation()), (Some(1), Some(8)));
    }

    #[test]
    fn registers_are_read_written_and_reset_by_the_newest_controller_alone() {
        let (mut agent, register) = (agent(), Register::RefusedByPort);
        let cell = |reply: ControlReply| match reply {
            ControlReply::Register { cells, .. } => cells[3],
            reply => panic!("{reply:?}"),
        };
        let write = |cell| ControlRequest::WriteRegister { term: 2, register, cell, value: 9 };
        assert_eq!(cell(agent.handle(write(3))), 9);
        assert!(matches!(agent.handle(write(256)), ControlReply::Failed { .. }));
        assert_eq!(cell(agent.handle(ControlRequest::ResetRegister { term: 2, register })), 9);
        assert_eq!(cell(agent.handle(ControlRequest::ReadRegister { term: 2, register })), 0);
        let older = ControlRequest::ResetRegister { term: 1, register };
        assert_eq!(agent.handle(older), ControlReply::Refused { current_term: 2 });
    }

    /// Fails when it is told to.
    #[derive(Default)]
    struct Notes {
        term: u64,
        fails: bool,
    }

    impl TermMemory for &mut Notes {
        fn remember(&mut self, term: u64) -> Result<(), String> {
            if self.fails {
                return Err("no space left".to_string());
            }
            self.term = term;
            Ok(())
        }
    }

    #[test]
    fn a_term_is_remembered_before_it_is_obeyed() {
        let mut notes = Notes::default();
        let router = || Router::new(VringConfig::DEFAULT).unwrap();
        let install = |term| ControlRequest::Install { term, tables: tables(1, 1) };
        let mut agent = SwitchAgent::with_memory(router(), 0, &mut notes);
        assert!(matches!(agent.handle(ControlRequest::Status { term: 7 }), ControlReply::Status { .. }));
        notes.fails = true;
        let mut agent = SwitchAgent::with_memory(router(), notes.term, &mut notes);
        assert_eq!(agent.handle(install(6)), ControlReply::Refused { current_term: 7 });
        let reply = agent.handle(install(8));
        assert!(
            matches!(&reply, ControlReply::Failed { generation: 1, reason } if reason == "no space left")
        );
        assert!(matches!(agent.backend_mut().route([10, 0, 0, 9], [10, 10, 0, 1], None), Route::Miss));
        assert_eq!(agent.handle(install(7)), ControlReply::Installed { term: 7, generation: 1 });
        assert_eq!(notes.term, 7);
    }

    fn tables_at_capacity() -> TableSet {
        let vnode = |ring: u32, index: u32| Prefix::new((ring + index).to_be_bytes(), 32);
        let members = |index: u32| {
            let first = (index % 1024) as u16 % 241;
            MemberSet::new((first..first + 15).chain([255 - (index % 1024 / 241) as u16]).map(HostId))
        };
        TableSet {
            generation: u64::MAX,
            hosts: (0..256)
                .map(|id| Host {
                    id: HostId(id),
                    role: HostRole::Node,
                    ip: [10, 0, 1, id as u8],
                    udp_port: u16::MAX,
                    mac: [2, 0, 0, 0, 1, id as u8],
                    port: id,
                })
                .collect(),
            unicast: (0..4096)
                .map(|index| UnicastEntry {
                    destination: vnode(0x0a0a_0000, index),
                    partition: u32::MAX - index,
                    host: HostId(255),
                })
                .collect(),
            division: (0..16384)
                .map(|index| DivisionEntry {
                    partition: u32::MAX,
                    source: vnode(0xffff_0000, index),
                    host: HostId(255),
                })
                .collect(),
            multicast: (0..4096)
                .map(|index| MulticastEntry {
                    destination: vnode(0x0a0b_0000, index),
                    members: members(index),
                })
                .collect(),
        }
    }

    #[test]
    fn full_tables_fit_into_one_message() {
        let tables = tables_at_capacity();
        assert_eq!(tables.validate(&VringConfig::DEFAULT.try_into().unwrap()), Ok(()));
        let request = ControlRequest::Install { term: u64::MAX, tables };
        let bytes = encode(&request).unwrap();
        assert_eq!(decode(&bytes), Ok(request));
    }

    #[test]
    fn decoding_is_strict() {
        let mut bytes = encode(&ControlRequest::Status { term: 3 }).unwrap();
        assert_eq!(decode(&bytes), Ok(ControlRequest::Status { term: 3 }));
        for length in 0..bytes.len() {
            assert!(matches!(decode::<ControlRequest>(&bytes[..length]), Err(ControlError::Malformed(_))));
        }
        bytes.push(0);
        assert_eq!(decode::<ControlRequest>(&bytes), Err(ControlError::TrailingBytes { bytes: 1 }));
        let long = vec![0; CONTROL_MESSAGE_BYTES_MAX + 1];
        assert!(matches!(decode::<ControlReply>(&long), Err(ControlError::TooLong { .. })));
    }

    proptest! {
        #[test]
        fn random_bytes_never_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode::<ControlRequest>(&bytes);
            let _ = decode::<ControlReply>(&bytes);
        }
    }
}
