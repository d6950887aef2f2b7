//! A lab of a test's own: beside the one that the environment names, so that whoever works with that is not disturbed.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use nicekv_client::Keyspace;
use nicekv_proto::placement::KeyspaceSpec;

use crate::clients::{Client, RespClient};
use crate::commands;
use crate::error::{LabError, Result};
use crate::faults;
use crate::progress::Progress;
use crate::ready;
use crate::scope::Scope;
use crate::state::LabState;
use crate::topology::{Host, WIRE_PORT};
use crate::up::{self, last_words};
use crate::{ControlArguments, Engine, NetworkArguments, Roles, UpArguments};

/// Nodes of such a lab.
pub(crate) const NODES: u8 = 5;
/// Copies of each value.
const REPLICAS: usize = 3;
/// Hosts for clients.
const CLIENTS: u8 = 2;

/// In which one such lab differs from another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// Keyspaces beside the default one.
    pub(crate) further: &'a [String],
    pub(crate) spares: u8,
    pub(crate) control: ControlArguments,
    pub(crate) network: NetworkArguments,
}

/// A running lab with durable nodes, removed when it is dropped.
pub(crate) struct OwnLab {
    pub(crate) scope: Scope,
    /// The default one is the first.
    pub(crate) keyspaces: Vec<KeyspaceSpec>,
    kept: bool,
}

impl OwnLab {
    /// Returns when the lab is ready, its spares started.
    pub(crate) fn up(
        base: &Scope,
        name: &str,
        wanted: Wanted<'_>,
        roles: Roles<'_>,
        interrupted: &AtomicBool,
    ) -> Result<Self> {
        let scope = base.beside(name)?;
        let Wanted { further, spares, control, network } = wanted;
        let arguments = UpArguments {
            nodes: Some(NODES.into()),
            spares: spares.into(),
            clients: Some(CLIENTS.into()),
            replicas: REPLICAS,
            control,
            write_set: None,
            keyspaces: further.to_vec(),
            engine: Engine::Durable,
            nodes_coordinate: false,
            kernel_get_mib: crate::plan::KERNEL_GET_MIB,
            link_mbit: crate::plan::LINK_MBIT_PER_SECOND,
            hot_values: None,
            hot_holders: None,
            network,
            data_dir: None,
        };
        up::bring_up(&scope, &arguments, roles, interrupted)?;
        let keyspaces = up::all_keyspaces(&arguments)?;
        let lab = Self { scope, keyspaces, kept: false };
        for spare in NODES..NODES + spares {
            commands::start_unwatched(&lab.scope, Host::Node(spare))?;
        }
        Ok(lab)
    }

    /// A native client, on the host of this number.
    pub(crate) fn native_client(&self, number: u64) -> Result<Client> {
        let keyspace = |spec: &KeyspaceSpec| Keyspace {
            id: spec.id,
            replication: spec.replication(),
            order: spec.order,
            is_hot: spec.is_hot(),
            ..spec.vrings(WIRE_PORT).into()
        };
        let keyspaces = self.keyspaces.iter().map(keyspace).collect();
        Client::native(&self.scope, Self::client_host(number), keyspaces)
    }

    /// A client of the gateway on the host of this number, which tells it from others that judge the same keys.
    pub(crate) fn resp_client(&self, number: u64) -> Client {
        Client::resp(&self.scope, Self::client_host(number), number)
    }

    /// The same, for any command.
    pub(crate) fn redis(&self, number: u64) -> RespClient {
        Client::redis(&self.scope, Self::client_host(number), number)
    }

    /// The host of the client with this number: they take turns.
    fn client_host(number: u64) -> Host {
        Host::Client((number % u64::from(CLIENTS)) as u8)
    }

    /// As it is now.
    pub(crate) fn state(&self) -> Result<LabState> {
        LabState::load(&self.scope)?.ok_or(LabError::NotRunning)
    }

    /// Waits until every partition has all its replicas again and every gateway works.
    pub(crate) fn wait_until_whole(&self, interrupted: &AtomicBool) -> Result<()> {
        ready::wait(&self.scope, &self.state()?, interrupted, &mut Progress::of("lab"))
    }

    /// Kills a process that runs. One that has ended by itself is what tests are for.
    pub(crate) fn kill(&self, host: Host) -> Result<()> {
        commands::kill(&self.scope, &host.to_string()).map_err(|error| match error {
            LabError::RunsNot { host } => LabError::Ended { host, last_words: last_words(&self.scope, host) },
            error => error,
        })
    }

    /// Ends all faults of the network.
    pub(crate) fn heal(&self) -> Result<()> {
        faults::change(&self.scope, None, |faults| *faults = faults::CableFaults::default())
    }

    /// Leaves the lab for somebody to look at; the exit code of a check that has failed.
    pub(crate) fn keep(mut self) -> ExitCode {
        self.kept = true;
        let down = self.scope.command("down");
        eprintln!(
            "nicekv: the lab is left as it is, logs in {}; `{down}` removes it",
            self.scope.logs().display()
        );
        ExitCode::FAILURE
    }
}

impl Drop for OwnLab {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        if let Err(error) = up::down(&self.scope) {
            eprintln!("nicekv: {error}; `{}` removes the lab", self.scope.command("down"));
        }
    }
}
