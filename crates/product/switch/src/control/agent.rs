//! The agent, the switch's side of the control protocol: checks the term and generation of
//! requests, and carries them out.

use alloc::format;
use alloc::string::{String, ToString};

use super::hot_index::HotIndex;
use super::lookup::{Found, Lookup};
use super::message::{ControlReply, ControlRequest};
use crate::{Backend, BackendError, Counter, HotConfig, HotEntry, Register, Table, TableSet, TableUpdate};

/// Stores the newest term, so that it survives a restart of the agent.
pub trait TermStore {
    /// Stores `term` durably before it returns. The error is a message of one line.
    fn store(&mut self, term: u64) -> Result<(), String>;
}

/// For an agent that does not store the term itself; its caller passes the newest term to
/// [`SwitchAgent::new`].
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTermStore;

impl TermStore for NoTermStore {
    fn store(&mut self, _term: u64) -> Result<(), String> {
        Ok(())
    }
}

impl<M: TermStore> TermStore for Option<M> {
    fn store(&mut self, term: u64) -> Result<(), String> {
        self.as_mut().map_or(Ok(()), |store| store.store(term))
    }
}

#[derive(Clone, Debug)]
pub struct SwitchAgent<B, M = NoTermStore> {
    backend: B,
    store: M,
    term: u64,
    installed: Option<Installed>,
    hot: HotIndex,
}

#[derive(Clone, Debug)]
struct Installed {
    term: u64,
    tables: TableSet,
}

impl<B: Backend> SwitchAgent<B> {
    /// An agent whose back end has no tables yet. `term`: the newest term that this switch has
    /// seen; 0 if none.
    pub fn new(backend: B, term: u64) -> Self {
        Self::with_term_store(backend, term, NoTermStore)
    }
}

impl<B: Backend, M: TermStore> SwitchAgent<B, M> {
    /// An agent whose back end has no tables yet. `term`: the term that `store` has stored.
    pub fn with_term_store(mut backend: B, term: u64, store: M) -> Self {
        backend.obey(term);
        Self { backend, store, term, installed: None, hot: HotIndex::default() }
    }

    /// The newest term seen.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// The generation in force.
    pub fn generation(&self) -> Option<u64> {
        self.installed.as_ref().map(|installed| installed.tables.generation)
    }

    /// The back end, which processes packets.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Mutable access to the back end.
    pub fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    /// Carries out one request.
    pub fn handle(&mut self, request: ControlRequest) -> ControlReply {
        let term = request.term();
        if term < self.term {
            return ControlReply::Refused { current_term: self.term };
        }
        if let Err(reason) = self.obey(term) {
            if request.is_of_hot_keys() {
                return ControlReply::HotFailed { term, reason };
            }
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
            ControlRequest::Lookup { lookup, .. } => self.look_up(lookup),
            ControlRequest::Requests { .. } => self.requests().unwrap_or_else(|error| self.failed(&error)),
            ControlRequest::SetHot { config, .. } => self.set_hot(&config),
            ControlRequest::ChangeHot { clear, removed, set, .. } => self.change_hot(clear, &removed, &set),
            ControlRequest::ReadHot { .. } => self.read_hot(),
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

    /// Adopts a newer term, which fences off older ones. A term that cannot be stored is not
    /// adopted and fences off nobody: after a restart the agent would not remember it.
    fn obey(&mut self, term: u64) -> Result<(), String> {
        if term > self.term {
            self.store.store(term)?;
            self.term = term;
            self.backend.obey(term);
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
                let reason =
                    format!("generation {generation} is not newer than the installed generation {current}");
                return ControlReply::Failed { generation, reason };
            }
        }
        let result = self.backend.install(&tables).map(|()| tables);
        self.conclude(generation, result)
    }

    /// The reply to an attempt to install tables of this generation.
    fn conclude(&mut self, generation: u64, result: Result<TableSet, BackendError>) -> ControlReply {
        match result {
            Ok(tables) => {
                self.installed = Some(Installed { term: self.term, tables });
                ControlReply::Installed { term: self.term, generation }
            }
            Err(error) => ControlReply::Failed { generation, reason: error.to_string() },
        }
    }

    /// Changes one table. A repeated request changes nothing.
    fn update(&mut self, update: &TableUpdate) -> ControlReply {
        let (term, generation) = (self.term, update.generation);
        let installed = self.installed.as_ref().filter(|installed| installed.term == term);
        if installed.is_some_and(|installed| update.is_applied(&installed.tables)) {
            return ControlReply::Installed { term, generation };
        }
        if generation <= update.base {
            let reason =
                format!("generation {generation} is not newer than its base, generation {}", update.base);
            return ControlReply::Failed { generation, reason };
        }
        let result = update
            .applied_to(installed.map(|installed| &installed.tables))
            .map_err(BackendError::from)
            .and_then(|tables| self.backend.update(update).map(|()| tables));
        self.conclude(generation, result)
    }

    fn set_hot(&mut self, config: &HotConfig) -> ControlReply {
        let result = self.backend.set_hot(config);
        self.hot_changed(result)
    }

    fn change_hot(&mut self, clear: bool, removed: &[u64], set: &[HotEntry]) -> ControlReply {
        let result = self.backend.change_hot(clear, removed, set);
        if result.is_ok() {
            self.hot.change(clear, removed, set);
        }
        self.hot_changed(result)
    }

    fn hot_changed(&self, result: Result<(), BackendError>) -> ControlReply {
        match result {
            Ok(()) => ControlReply::HotChanged { term: self.term, newest: self.hot.newest() },
            Err(error) => ControlReply::HotFailed { term: self.term, reason: error.to_string() },
        }
    }

    fn read_hot(&mut self) -> ControlReply {
        match self.backend.read_hot() {
            Ok(reading) => {
                self.hot.note_newest(reading.newest);
                ControlReply::Hot { term: self.term, reading }
            }
            Err(error) => ControlReply::HotFailed { term: self.term, reason: error.to_string() },
        }
    }

    /// Reads a register, then applies `then` to the back end, and replies with what was read.
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

    fn status(&self) -> ControlReply {
        match (self.backend.table_status(), self.backend.counters()) {
            (Ok(tables), Ok(counters)) => {
                ControlReply::Status { term: self.term, generation: self.generation(), tables, counters }
            }
            (Err(error), _) | (_, Err(error)) => self.failed(&error),
        }
    }

    fn requests(&self) -> Result<ControlReply, BackendError> {
        // Counters are read first. The controller takes a total that is smaller than before for a
        // restart of the switch, so the total must not include matches later than the counts of
        // entries.
        let counters = self.backend.counters()?;
        let matched = Table::ALL.map(|table| counters.get(Counter::Hits(table))).iter().sum();
        let requests = Table::ALL
            .into_iter()
            .map(|table| self.backend.entry_requests(table))
            .collect::<Result<_, _>>()?;
        Ok(ControlReply::Requests { term: self.term, generation: self.generation(), matched, requests })
    }

    fn look_up(&self, lookup: Lookup) -> ControlReply {
        let tables = self.installed.as_ref().map(|installed| &installed.tables);
        let mut found = tables.map(|tables| Found::of(tables, &self.backend, lookup)).unwrap_or_default();
        found.hot = self.hot.of(lookup.keyspace, lookup.value).cloned();
        ControlReply::Found { term: self.term, generation: self.generation(), lookup, found }
    }
}

#[cfg(test)]
mod tests;
