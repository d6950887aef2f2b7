//! What the controller asks of the reference pipeline: its router's, but for ports and what was learned there; and what its surroundings tell it.

use alloc::vec::Vec;

use super::Pipeline;
use crate::{
    Backend, BackendError, Counters, EntryRequests, HotConfig, HotEntry, HotReading, Register, Table,
    TableSet, TableStatus, TableUpdate,
};

impl Pipeline {
    /// See [`crate::Router::begin_life`].
    pub fn begin_life(&mut self, nonce: u64) {
        self.router.begin_life(nonce);
    }

    /// What the boot-time clock says from now on.
    pub fn set_clock(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }
}

impl Backend for Pipeline {
    fn install(&mut self, tables: &TableSet) -> Result<(), BackendError> {
        tables.validate_ports(|port| self.ports.binary_search(&port).is_ok())?;
        let is_rerouted = self.router.tables().is_none_or(|installed| installed.leads_otherwise(tables));
        self.router.install(tables)?;
        // Who was behind a trunk may be behind another one.
        if is_rerouted {
            self.trunks.iter().for_each(|port| self.macs.forget(*port));
        }
        Ok(())
    }

    fn update(&mut self, update: &TableUpdate) -> Result<(), BackendError> {
        self.router.update(update)
    }

    fn ports(&self) -> Option<Vec<u16>> {
        Some(self.ports.clone())
    }

    fn table_status(&self) -> Result<Vec<TableStatus>, BackendError> {
        self.router.table_status()
    }

    fn entry_hits(&self, table: Table) -> Result<Vec<u64>, BackendError> {
        self.router.entry_hits(table)
    }

    fn entry_requests(&self, table: Table) -> Result<Vec<EntryRequests>, BackendError> {
        self.router.entry_requests(table)
    }

    fn read_register(&self, register: Register) -> Result<Vec<u64>, BackendError> {
        self.router.read_register(register)
    }

    fn write_register(&mut self, register: Register, cell: u32, value: u64) -> Result<(), BackendError> {
        self.router.write_register(register, cell, value)
    }

    fn reset_register(&mut self, register: Register) -> Result<(), BackendError> {
        self.router.reset_register(register)
    }

    fn set_hot(&mut self, config: &HotConfig) -> Result<(), BackendError> {
        self.router.set_hot(config)
    }

    fn change_hot(&mut self, clear: bool, removed: &[u64], set: &[HotEntry]) -> Result<(), BackendError> {
        self.router.change_hot(clear, removed, set)
    }

    fn read_hot(&mut self) -> Result<HotReading, BackendError> {
        self.router.read_hot()
    }

    fn counters(&self) -> Result<Counters, BackendError> {
        self.router.counters()
    }
}
