//! The gateway as the commands of a connection see it.

use crate::clients::ClientEntry;
use crate::shared::{ServerState, ThreadState};
use crate::user_source::sha256;
use crate::{information, parameters};
use nicekv_client::Topic;
use nicekv_proto::{Duration, KeyspaceId};
use nicekv_redis::acl::{Denial, DenialEntry, Users};
use nicekv_redis::client_info::{ClientDetails, ClientInfo};
use nicekv_redis::error::CommandError;
use nicekv_redis::host::{Host, Parameter, SlowEntry};
use nicekv_redis::key_scan::CursorStore;
use nicekv_redis::resp::Protocol;
use nicekv_redis::script_reply::Digest;
use nicekv_redis::session::Session;
use nicekv_runtime::now;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) struct GatewayHost<'a> {
    pub(crate) server: &'a ServerState,
    /// The connection that runs the command.
    pub(crate) client: &'a ClientEntry,
}

impl GatewayHost<'_> {
    fn thread(&self) -> &ThreadState {
        &self.server.threads[self.client.thread]
    }
}

/// Fields of `CLIENT LIST` that come from a session.
pub(crate) fn client_details(session: &Session) -> ClientDetails {
    let (channels, patterns) = session.subscriptions.counts();
    ClientDetails {
        name: session.name.clone(),
        user: session.login.name().to_vec(),
        keyspace: session.keyspace,
        is_resp3: session.protocol == Protocol::Resp3,
        channels,
        patterns,
        queued: session.multi.queued(),
        is_monitor: session.is_monitor,
    }
}

impl Host for GatewayHost<'_> {
    fn value_limit(&self, keyspace: KeyspaceId) -> usize {
        self.server.value_limit(keyspace)
    }

    fn users(&self) -> (Arc<Users>, u64) {
        self.server.users.users()
    }

    fn sha256(&self, bytes: &[u8]) -> [u8; 32] {
        sha256(bytes)
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), String> {
        getrandom::fill(bytes).map_err(|error| error.to_string())
    }

    fn add_script(&self, source: &[u8]) -> Digest {
        self.server.scripts.add(source)
    }

    fn cursors(&self) -> Arc<dyn CursorStore> {
        self.server.cursors.clone()
    }

    fn keyspaces(&self) -> Vec<KeyspaceId> {
        self.server.keyspaces.all()
    }

    fn not_flushable(&self) -> Option<(KeyspaceId, &'static str)> {
        self.server.keyspaces.not_flushable()
    }

    fn can_publish(&self) -> bool {
        self.server.keyspaces.can_publish()
    }

    fn find_script(&self, digest: &[u8]) -> Option<(Digest, Arc<[u8]>)> {
        self.server.scripts.find(digest)
    }

    fn has_script(&self, digest: &[u8]) -> bool {
        self.server.scripts.has(digest)
    }

    fn forget_scripts(&self) {
        self.server.scripts.forget_all();
    }

    fn change_users(
        &self,
        change: &mut dyn FnMut(&Users) -> Result<Users, CommandError>,
    ) -> Result<(), CommandError> {
        self.server.users.change(change)?;
        self.server.threads.iter().for_each(ThreadState::wake);
        Ok(())
    }

    fn has_user_file(&self) -> bool {
        self.server.users.has_file()
    }

    fn load_users(&self) -> Result<(), String> {
        self.server.users.load()?;
        self.server.threads.iter().for_each(ThreadState::wake);
        Ok(())
    }

    fn note_denial(&self, denial: Denial<'_>, unix_ms: u64) {
        self.server.users.note(denial, unix_ms);
    }

    fn denials(&self, count: usize) -> Vec<DenialEntry> {
        self.server.users.newest_denials(count)
    }

    fn forget_denials(&self) {
        self.server.users.forget_denials();
    }

    fn client(&self, session: &Session, unix_ms: u64) -> ClientInfo {
        self.client.set_details(client_details(session));
        let info = self.client.info();
        self.client.touch(info.last_subject, unix_ms);
        ClientInfo { active_unix_ms: unix_ms, ..info }
    }

    fn clients(&self) -> Vec<ClientInfo> {
        self.server.clients.list().iter().map(|client| client.info()).collect()
    }

    fn kill_client(&self, id: u64) {
        if let Some(client) = self.server.clients.get(id) {
            self.server.clients.remove(id);
            self.server.threads[client.thread].close(id);
        }
    }

    fn spare_client(&self, is_spared: bool) {
        self.client.spare(is_spared);
    }

    fn pause(&self, time: Duration, writes_only: bool) {
        self.server.pause.begin(now(), time, writes_only);
    }

    fn end_pause(&self) {
        self.server.pause.end();
    }

    fn join_monitors(&self) {
        self.thread().monitors.join();
    }

    fn leave_monitors(&self) {
        self.thread().monitors.leave();
    }

    fn subscribers(&self) -> BTreeMap<Topic, usize> {
        self.server.subscribers.counts().clone()
    }

    fn slow_entries(&self, count: usize) -> Vec<SlowEntry> {
        self.server.slow_log.newest(count)
    }

    fn slow_entry_count(&self) -> usize {
        self.server.slow_log.len()
    }

    fn forget_slow_entries(&self) {
        self.server.slow_log.clear();
    }

    fn parameters(&self) -> Vec<Parameter> {
        parameters::all(self.server)
    }

    fn set_parameter(&self, name: &str, number: i64) {
        parameters::set(self.server, name, number);
    }

    fn reset_statistics(&self) {
        self.server.reset_totals();
    }

    fn info_section(&self, name: &str, unix_ms: u64) -> Vec<(String, String)> {
        information::section(name, self.server, unix_ms)
    }
}
