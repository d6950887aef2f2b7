//! A lab for a test, beside the one that the environment names.

use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;

use nicekv_client::{Addressing, Keyspace};
use nicekv_proto::placement::KeyspaceSpec;

use crate::arguments::{ControlArguments, Engine, NetworkArguments, UpArguments};
use crate::clients::{Client, RespClient};
use crate::commands;
use crate::data_plane::DataPlane;
use crate::error::{LabError, Result};
use crate::faults;
use crate::launch::last_log_line;
use crate::plan::{self, Roles};
use crate::ready;
use crate::scope::Scope;
use crate::state::{LabState, LinkFaults};
use crate::topology::{Host, WIRE_PORT};
use crate::up;
use crate::wait::Progress;

/// Nodes of a test lab.
pub(crate) const NODES: u8 = 5;
/// Copies of each value.
const REPLICAS: usize = 3;
/// Client hosts.
const CLIENTS: u8 = 2;

/// Options of a test lab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestLabOptions<'a> {
    /// Keyspaces in addition to the default one.
    pub(crate) further: &'a [String],
    pub(crate) spares: u8,
    pub(crate) control: ControlArguments,
    pub(crate) network: NetworkArguments,
}

/// A running lab with durable nodes, removed when it is dropped.
pub(crate) struct TestLab {
    pub(crate) scope: Scope,
    /// All keyspaces, the default one first.
    pub(crate) keyspaces: Vec<KeyspaceSpec>,
    addressing: Addressing,
    kept: bool,
}

impl TestLab {
    /// Creates a lab, and returns when it is ready. Its spare nodes are running, too.
    pub(crate) fn up(
        base: &Scope,
        name: &str,
        options: TestLabOptions<'_>,
        roles: Roles<'_>,
        interrupted: &AtomicBool,
    ) -> Result<Self> {
        let scope = base.beside(name)?;
        let TestLabOptions { further, spares, control, network } = options;
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
            kernel_get_mib: plan::KERNEL_GET_MIB,
            link_mbit: plan::LINK_MBIT_PER_SECOND,
            hot_values: None,
            hot_holders: None,
            network,
            data_dir: None,
        };
        up::bring_up(&scope, &arguments, roles, interrupted)?;
        let keyspaces = up::all_keyspaces(&arguments)?;
        // An OpenFlow switch does not see the digest, which finds the vnode in a ring.
        let addressing =
            if network.switch == DataPlane::OpenFlow { Addressing::Vnode } else { Addressing::Ring };
        let lab = Self { scope, keyspaces, addressing, kept: false };
        for spare in NODES..NODES + spares {
            commands::start_unwatched(&lab.scope, Host::Node(spare))?;
        }
        Ok(lab)
    }

    /// The native client of this number; clients are spread over the client hosts.
    pub(crate) fn native_client(&self, number: u64) -> Result<Client> {
        let keyspace = |spec: &KeyspaceSpec| Keyspace {
            id: spec.id,
            replication: spec.replication(),
            order: spec.order,
            is_hot: spec.is_hot(),
            addressing: self.addressing,
            ..spec.vrings(WIRE_PORT).into()
        };
        let keyspaces = self.keyspaces.iter().map(keyspace).collect();
        Client::native(&self.scope, Self::client_host(number), keyspaces)
    }

    /// The Redis client of this number, at the gateway of its host.
    pub(crate) fn resp_client(&self, number: u64) -> Client {
        Client::resp(&self.scope, Self::client_host(number), number)
    }

    /// The same, for any Redis command.
    pub(crate) fn redis(&self, number: u64) -> RespClient {
        Client::redis(&self.scope, Self::client_host(number), number)
    }

    /// The host of the client of this number.
    fn client_host(number: u64) -> Host {
        Host::Client((number % u64::from(CLIENTS)) as u8)
    }

    pub(crate) fn state(&self) -> Result<LabState> {
        LabState::load(&self.scope)?.ok_or(LabError::NotRunning)
    }

    /// Runs `nicekv WORDS` on a client host. Returns whether it succeeded, and its output or error.
    pub(crate) fn nicekv(&self, words: &[&str]) -> Result<(bool, String)> {
        let state = self.state()?;
        let mut command = Command::new(&state.program);
        command.args(words).args(["--endpoint", &state.endpoints()]);
        let output = self.scope.namespace(Host::Client(0)).inside(|| command.output())?;
        let output = output.map_err(LabError::system("run `nicekv`"))?;
        let text = if output.status.success() { output.stdout } else { output.stderr };
        Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
    }

    /// Waits until every partition has all its replicas, and every gateway works.
    pub(crate) fn wait_until_whole(&self, interrupted: &AtomicBool) -> Result<()> {
        ready::wait(&self.scope, &self.state()?, interrupted, &mut Progress::of("lab"))
    }

    /// Kills a running process. A process that has ended by itself is an error.
    pub(crate) fn kill(&self, host: Host) -> Result<()> {
        commands::kill(&self.scope, &host.to_string()).map_err(|error| match error {
            LabError::HostNotRunning { host } => {
                LabError::Ended { host, log_line: last_log_line(&self.scope, host) }
            }
            error => error,
        })
    }

    /// Ends all injected faults of the network.
    pub(crate) fn heal(&self) -> Result<()> {
        faults::change(&self.scope, None, |faults| *faults = LinkFaults::default())
    }

    /// Keeps the lab for inspection. Returns the exit code of a failed check.
    pub(crate) fn keep(mut self) -> ExitCode {
        self.kept = true;
        let down = self.scope.command("down");
        eprintln!(
            "nicekv: the lab stays as it is, its logs are in {}; `{down}` removes it",
            self.scope.logs().display()
        );
        ExitCode::FAILURE
    }
}

impl Drop for TestLab {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        if let Err(error) = up::down(&self.scope) {
            eprintln!("nicekv: {error}; `{}` removes the lab", self.scope.command("down"));
        }
    }
}
