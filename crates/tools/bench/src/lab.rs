//! Labs of the bench's own, started and removed by `nicekv lab`. Several may be up at once, by their names.
//!
//! A bench that is killed leaves its labs behind with all that runs in them; the next one then says how to remove them.

use crate::error::{BenchError, Result};
use crate::netns::Hosts;
use nicekv_lab::topology::{Host, METADATA};
use nicekv_lab::{Hook, LAB_VARIABLE};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Of a lab that is alone, and before what tells it from others: it does not collide with one that somebody works with.
const NAME: &str = "bench";

/// What is between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// The switch, at this hook of its ports.
    Switch(Hook),
    /// A plain network, with an edge on every host.
    Plain,
}

impl Network {
    /// Where in it the pipeline runs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Switch(hook) => hook.on_veth().name(),
            Self::Plain => "edges",
        }
    }

    /// What `nicekv lab up` is told; nothing is left to the environment.
    fn options(self) -> [&'static str; 4] {
        match self {
            Self::Switch(hook) => ["--fabric", "switch", "--switch", hook.name()],
            Self::Plain => ["--fabric", "plain", "--switch", Hook::Tc.name()],
        }
    }
}

/// How the nodes keep data.
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

/// How many nodes, and R.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) nodes: u8,
    pub(crate) replicas: u8,
}

/// A lab that is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LabPlan<'a> {
    pub(crate) size: Size,
    pub(crate) engine: Engine,
    pub(crate) network: Network,
    /// Durable nodes have their data below it.
    pub(crate) directory: &'a Path,
    /// What else `nicekv lab up` is told.
    pub(crate) further: &'a [&'a str],
    /// A variable of the environment of its roles.
    pub(crate) environment: Option<(&'a str, &'a str)>,
    /// What tells it from others that are up at the same time.
    pub(crate) apart: Option<&'a str>,
    /// Hosts for clients.
    pub(crate) clients: u8,
}

impl<'a> LabPlan<'a> {
    /// Alone, and with nothing special.
    pub(crate) fn new(size: Size, engine: Engine, network: Network, directory: &'a Path) -> Self {
        Self { size, engine, network, directory, further: &[], environment: None, apart: None, clients: 1 }
    }

    fn name(&self) -> String {
        self.apart.map_or_else(|| NAME.into(), |apart| format!("{NAME}-{apart}"))
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
        let LabPlan { size, engine, network, directory, further, environment, clients, .. } = *plan;
        let name = plan.name();
        let [nodes, replicas, clients] =
            [size.nodes, size.replicas, clients].map(|number| number.to_string());
        let mut command = command(&name, "up")?;
        command.args(["--nodes", &nodes, "--replicas", &replicas, "--clients", &clients]);
        command.args(["--engine", engine.name()]).args(network.options()).args(further).envs(environment);
        if engine == Engine::Durable {
            command.arg("--data-dir").arg(directory.join(&name));
        }
        let hosts = Hosts::called(format!("nicekv-{name}-"));
        run(&name, command).map(|()| Self { name, hosts })
    }

    /// Its hosts.
    pub(crate) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// As [`Hosts::inside`].
    pub(crate) fn inside<T: Send>(&self, host: Host, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.hosts.inside(host, work)
    }

    /// The processes of its hosts, by the hosts' names.
    pub(crate) fn processes(&self) -> Result<Vec<(String, u32)>> {
        let status = self.status()?;
        let hosts = status["hosts"].as_array().into_iter().flatten();
        let process = |host: &serde_json::Value| {
            Some((host["name"].as_str()?.to_owned(), u32::try_from(host["pid"].as_u64()?).ok()?))
        };
        Ok(hosts.filter_map(process).collect())
    }

    /// What `nicekv lab status` tells.
    pub(crate) fn status(&self) -> Result<serde_json::Value> {
        let mut command = command(&self.name, "status")?;
        let output = command.arg("--json").stderr(Stdio::null()).output();
        let output = output.map_err(BenchError::system("start `nicekv lab status`"))?;
        Ok(serde_json::from_slice(&output.stdout).unwrap_or_default())
    }

    /// Carries out another lab command, such as `kill node-0`.
    pub(crate) fn command(&self, words: &[&str]) -> Result<()> {
        let mut command = command(&self.name, words[0])?;
        command.args(&words[1..]);
        run(&self.name, command)
    }

    /// Carries out a command of an operator, such as `node drain node-0`, to its end.
    pub(crate) fn operate(&self, words: &[&str]) -> Result<()> {
        let mut command = Command::new(program("nicekv")?);
        command.args(words).args(["--endpoint", &METADATA.to_string()]);
        self.inside(Host::Client(0), || run(&self.name, command))?
    }
}

/// Runs a command to its end; its line of an error becomes ours.
fn run(name: &str, mut command: Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().map_err(BenchError::system("start `nicekv`"))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let line = errors.lines().last().unwrap_or("it said nothing").trim_start_matches("nicekv: ");
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

/// Another program of the project.
pub(crate) fn program(name: &'static str) -> Result<PathBuf> {
    nicekv_cli::find(name).map_err(|missing| BenchError::Environment(missing.to_string()))
}
