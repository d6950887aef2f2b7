//! Labs that the bench starts and removes by `nicekv-lab`. Several may be up at once, under
//! different names.
//!
//! A bench that is killed leaves its labs behind, with their processes; the next bench then says
//! how to remove them.

use crate::error::{BenchError, Result};
use crate::netns::Hosts;
use nicekv_lab::topology::{Host, METADATA};
use nicekv_lab::{Hook, LAB_VARIABLE};
use nicekv_runtime::control_plane::AdminRequest;
use nicekv_runtime::{Stop, admin};
use serde_json::Value;
use std::io;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The host from which most benches send their load.
pub(crate) const CLIENT: Host = Host::Client(0);
const READY_TIMEOUT: Duration = Duration::from_secs(120);
const READY_POLL: Duration = Duration::from_millis(50);
const STATUS_TIMEOUT: Duration = Duration::from_secs(1);

/// Name of a bench's only lab, and prefix of the names of several. A user's lab has another name.
const NAME: &str = "bench";

/// The network between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// The switch, at this hook of its ports.
    Switch(Hook),
    /// A plain network, with an edge on every host.
    Plain,
}

impl Network {
    /// Where the switch pipeline runs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Switch(hook) => hook.on_veth().name(),
            Self::Plain => "edges",
        }
    }

    /// Options of `nicekv lab up`, so that the environment decides nothing.
    fn options(self) -> [&'static str; 4] {
        match self {
            Self::Switch(hook) => ["--fabric", "switch", "--switch", hook.name()],
            Self::Plain => ["--fabric", "plain", "--switch", Hook::Tc.name()],
        }
    }
}

/// Storage engine of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Memory,
    Durable,
}

impl Engine {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Durable => "durable",
        }
    }
}

/// Number of nodes, and of replicas of each partition (R).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) nodes: u8,
    pub(crate) replicas: u8,
}

/// A lab to start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LabPlan<'a> {
    pub(crate) size: Size,
    pub(crate) engine: Engine,
    pub(crate) network: Network,
    /// Durable nodes keep their data below it.
    pub(crate) directory: &'a Path,
    /// Further options of `nicekv lab up`.
    pub(crate) options: &'a [&'a str],
    /// An environment variable of its processes.
    pub(crate) environment: Option<(&'a str, &'a str)>,
    /// Suffix of its name, if several labs are up at the same time.
    pub(crate) suffix: Option<&'a str>,
    /// Number of client hosts.
    pub(crate) clients: u8,
}

impl<'a> LabPlan<'a> {
    /// The only lab of a bench, without further options.
    pub(crate) fn new(size: Size, engine: Engine, network: Network, directory: &'a Path) -> Self {
        Self { size, engine, network, directory, options: &[], environment: None, suffix: None, clients: 1 }
    }

    fn name(&self) -> String {
        self.suffix.map_or_else(|| NAME.into(), |suffix| format!("{NAME}-{suffix}"))
    }
}

/// A running lab, removed when it is dropped.
pub(crate) struct Lab {
    name: String,
    hosts: Hosts,
}

impl Lab {
    /// Returns when the lab is ready.
    pub(crate) fn up(plan: &LabPlan<'_>) -> Result<Self> {
        let LabPlan { size, engine, network, directory, options, environment, clients, .. } = *plan;
        let name = plan.name();
        let [nodes, replicas, clients] =
            [size.nodes, size.replicas, clients].map(|number| number.to_string());
        let mut command = command(&name, "up")?;
        command.args(["--nodes", &nodes, "--replicas", &replicas, "--clients", &clients]);
        command.args(["--engine", engine.name()]).args(network.options()).args(options).envs(environment);
        if engine == Engine::Durable {
            command.arg("--data-dir").arg(directory.join(&name));
        }
        let hosts = Hosts::with_prefix(format!("nicekv-{name}-"));
        run(&name, command).map(|()| Self { name, hosts })
    }

    pub(crate) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// As [`Hosts::inside`].
    pub(crate) fn inside<T: Send>(&self, host: Host, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.hosts.inside(host, work)
    }

    /// Makes a client of a load on a host: `bind` gets the local address, and runs in the host's
    /// network namespace.
    pub(crate) fn client<T: Send>(
        &self,
        host: Host,
        bind: impl FnOnce(SocketAddrV4) -> io::Result<T> + Send,
    ) -> Result<T> {
        let address = SocketAddrV4::new(host.address(), 0);
        self.inside(host, || bind(address))?.map_err(BenchError::system("open a client's socket"))
    }

    /// The host name and process id of every role.
    pub(crate) fn processes(&self) -> Result<Vec<(String, u32)>> {
        let status = self.status()?;
        let hosts = status["hosts"].as_array().into_iter().flatten();
        let process = |host: &Value| {
            Some((host["name"].as_str()?.to_owned(), u32::try_from(host["pid"].as_u64()?).ok()?))
        };
        Ok(hosts.filter_map(process).collect())
    }

    /// The output of `nicekv lab status --json`; null if it fails.
    pub(crate) fn status(&self) -> Result<Value> {
        let mut command = command(&self.name, "status")?;
        let output = command.arg("--json").stderr(Stdio::null()).output();
        let output = output.map_err(BenchError::system("start `nicekv lab status`"))?;
        Ok(serde_json::from_slice(&output.stdout).unwrap_or_default())
    }

    /// The status that the metadata service reports; null if it does not answer.
    pub(crate) fn cluster_status(&self) -> Result<Value> {
        let answer =
            self.inside(CLIENT, || admin::ask(&[METADATA], &AdminRequest::Status, STATUS_TIMEOUT))?;
        Ok(answer.ok().and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default())
    }

    /// Waits until every partition has all its replicas, all of them consistent; the status then.
    pub(crate) fn wait_until_ready(&self, stop: &Stop) -> Result<Value> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let status = self.cluster_status()?;
            if status["ready"] == true {
                return Ok(status);
            }
            if stop.is_stopped() {
                return Err(BenchError::Interrupted);
            }
            if Instant::now() > deadline {
                let reason = &status["why_not_ready"];
                return Err(BenchError::Failed(format!("not ready after {READY_TIMEOUT:?}: {reason}")));
            }
            std::thread::sleep(READY_POLL);
        }
    }

    /// Runs another lab command, such as `kill node-0`.
    pub(crate) fn command(&self, words: &[&str]) -> Result<()> {
        let mut command = command(&self.name, words[0])?;
        command.args(&words[1..]);
        run(&self.name, command)
    }

    /// Runs an operator's command, such as `node drain node-0`, to its end.
    pub(crate) fn operate(&self, words: &[&str]) -> Result<()> {
        let mut command = Command::new(program("nicekv")?);
        command.args(words).args(["--endpoint", &METADATA.to_string()]);
        self.inside(CLIENT, || run(&self.name, command))?
    }
}

/// Runs a command to its end. If it fails, its error line becomes the bench's.
fn run(name: &str, mut command: Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().map_err(BenchError::system("start `nicekv`"))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let line = errors.lines().last().unwrap_or("it printed nothing").trim_start_matches("nicekv: ");
    let failure = line.replace("`nicekv lab", &format!("`{LAB_VARIABLE}={name} nicekv lab"));
    Err(match output.status.code() {
        Some(2) => BenchError::Environment(failure),
        _ => BenchError::Failed(failure),
    })
}

impl Drop for Lab {
    fn drop(&mut self) {
        let name = &self.name;
        let removed = command(name, "down").and_then(|mut command| {
            command.stdout(Stdio::null()).status().map_err(BenchError::system("start `nicekv lab down`"))
        });
        if !removed.is_ok_and(|status| status.success()) {
            eprintln!(
                "nicekv: the bench's lab is left behind: `{LAB_VARIABLE}={name} nicekv lab down` removes it"
            );
        }
    }
}

fn command(lab: &str, verb: &str) -> Result<Command> {
    let mut command = Command::new(program("nicekv-lab")?);
    command.arg(verb).env(LAB_VARIABLE, lab);
    Ok(command)
}

/// Path of another program of the project.
pub(crate) fn program(name: &'static str) -> Result<PathBuf> {
    nicekv_cli::find(name).map_err(|missing| BenchError::Environment(missing.to_string()))
}
