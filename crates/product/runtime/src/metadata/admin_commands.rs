//! Answers to commands: sent at once, or when a condition holds.

use crate::control_plane::{AdminRequest, NotLeading};
use nicekv_metadata::{ControlPlane, ListeningReport, Metadata, Refused, Status, SwitchId};
use nicekv_switch::control::Lookup;
use serde::Serialize;

pub(super) enum Answer {
    Now(Vec<u8>),
    /// Sent when this version of the state is persisted.
    Persisted(u64, Vec<u8>),
    /// Sent when the cluster is ready.
    Ready,
    /// Sent when the switches have answered the lookup.
    Found(Lookup),
    /// Sent at once; the connections must store the report.
    Noted(Box<ListeningReport>),
}

/// An instance's state for answering commands.
pub(super) struct AdminCommands<'a> {
    pub(super) core: Option<&'a mut Metadata>,
    pub(super) control_plane: &'a ControlPlane,
    /// Name and id of each configured switch.
    pub(super) switches: &'a [(String, SwitchId)],
}

impl AdminCommands<'_> {
    /// Returns the answer to a command, and when to send it.
    pub(super) fn answer(&mut self, request: &AdminRequest) -> serde_json::Result<Answer> {
        let control_plane = self.control_plane;
        let switches = self.switches;
        let status = |core: &Metadata| {
            let mut status = Status { control_plane: control_plane.clone(), ..core.status() };
            let name = |number: u16| {
                let named = switches.iter().find(|(_, id)| id.0 == number);
                named.map(|(name, _)| name.clone()).unwrap_or_default()
            };
            for switch in &mut status.switches {
                switch.name = name(switch.id);
                switch.trunks.iter_mut().for_each(|trunk| trunk.name = name(trunk.to));
            }
            let of_hot_keys = status.hot.iter_mut().flat_map(|hot| &mut hot.switches);
            of_hot_keys.for_each(|switch| switch.name = name(switch.switch));
            status
        };
        let core = match &mut self.core {
            Some(core) if !core.is_overdue() => core,
            core => {
                let known = core.as_ref().filter(|_| *request == AdminRequest::Status);
                let known = known.map(|core| status(core));
                return Ok(Answer::Now(NotLeading::new(control_plane, known).encode()));
            }
        };
        let named = |refused: Refused| {
            refused.naming_switches(|number| {
                let named = switches.iter().find(|(_, id)| id.0 == number);
                named.map(|(name, _)| name.clone())
            })
        };
        let json = match request {
            AdminRequest::Status => serde_json::to_vec(&status(core)),
            AdminRequest::ClusterInfo => serde_json::to_vec(&core.cluster_info()),
            AdminRequest::Target(report) => {
                core.handle_target_report(report);
                serde_json::to_vec(&core.cluster_info())
            }
            AdminRequest::CollectChunks => return begun(core, Metadata::collect_chunks),
            AdminRequest::Plan(change) => planned(core.plan(change).map_err(named)),
            AdminRequest::Change(change) => return begun(core, |core| core.change(change).map_err(named)),
            AdminRequest::PlanPartitions(change) => planned(core.plan_partitions(change)),
            AdminRequest::ChangePartitions(change) => {
                return begun(core, |core| core.change_partitions(change));
            }
            AdminRequest::PlanKeyspace(change) => planned(core.plan_keyspace(change)),
            AdminRequest::ChangeKeyspace(change) => return begun(core, |core| core.change_keyspace(change)),
            AdminRequest::Ready => return Ok(Answer::Ready),
            AdminRequest::Lookup(lookup) => return Ok(Answer::Found(*lookup)),
            AdminRequest::Listening(report) => return Ok(Answer::Noted(report.clone().into())),
            // These requests are for nodes.
            AdminRequest::Partition(_)
            | AdminRequest::Watch(_)
            | AdminRequest::Watched(_)
            | AdminRequest::Durations
            | AdminRequest::Backup(_) => serde_json::to_vec(&()),
        };
        json.map(Answer::Now)
    }
}

/// The answer to a change that was started, to be sent once the change is persisted.
fn begun<P: Serialize>(
    core: &mut Metadata,
    begin: impl FnOnce(&mut Metadata) -> Result<P, Refused>,
) -> serde_json::Result<Answer> {
    let outcome = begin(core);
    let version = core.version() + u64::from(outcome.is_ok());
    planned(outcome).map(|json| Answer::Persisted(version, json))
}

fn planned<P: Serialize>(outcome: Result<P, Refused>) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&outcome.map_err(|refused| refused.to_string()))
}
