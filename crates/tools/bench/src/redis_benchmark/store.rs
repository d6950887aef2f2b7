//! The store under test: `nicekv up`, or a lab, and where its peers and its load are.

use super::{CLIENT, NODES, PEER_PORT};
use crate::error::{BenchError, Result};
use crate::lab::{Engine, Lab, LabPlan, Network, Size, program};
use crate::redis_server::{RedisServer, Role};
use nicekv_lab::topology::{Host, RESP};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// NICEKV with its gateway.
pub(super) enum Store {
    Up(Child, SocketAddrV4),
    Lab(Lab),
}

impl Store {
    /// In a lab with this network, or `nicekv up`.
    pub(super) fn up(network: Option<Network>, engine: Engine, directory: &Path) -> Result<Self> {
        if let Some(network) = network {
            let size = Size { nodes: NODES, replicas: NODES };
            return Lab::up(&LabPlan::new(size, engine, network, directory)).map(Self::Lab);
        }
        let mut command = Command::new(program("nicekv")?);
        command.args(["up", "--engine", engine.name(), "--resp", "127.0.0.1:0"]);
        command.arg("--data-dir").arg(directory.join(format!("up-{}", engine.name())));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(BenchError::system("start `nicekv up`"))?;
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let ready = lines.map_while(std::io::Result::ok).find(|line| line.starts_with("ready "));
        let address = ready.as_deref().and_then(|line| {
            line.split(' ')
                .find_map(|word| word.strip_prefix("resp="))
                .and_then(|address| address.parse().ok())
        });
        let failed = || BenchError::Failed("`nicekv up` did not get ready".into());
        match address {
            Some(address) => Ok(Self::Up(child, address)),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                Err(failed())
            }
        }
    }

    pub(super) fn address(&self) -> SocketAddrV4 {
        match self {
            Self::Up(_, address) => *address,
            Self::Lab(_) => RESP,
        }
    }

    /// Runs where the load comes from.
    pub(super) fn at_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        match self {
            Self::Up(..) => Ok(work()),
            Self::Lab(lab) => lab.inside(CLIENT, work),
        }
    }

    /// A Redis server where a node of ours would be.
    pub(super) fn start_redis(&self, index: u8, engine: Engine, directory: &Path) -> Result<RedisServer> {
        let address = |index: u8| match self {
            Self::Up(..) => SocketAddrV4::new(Ipv4Addr::LOCALHOST, PEER_PORT + u16::from(index)),
            Self::Lab(_) => SocketAddrV4::new(Host::Node(index).address(), PEER_PORT),
        };
        let primary = (index > 0).then(|| address(0));
        let role = Role { address: address(index), primary, durable: engine == Engine::Durable };
        match self {
            Self::Up(..) => RedisServer::start(role, directory),
            Self::Lab(lab) => lab.inside(Host::Node(index), || RedisServer::start(role, directory))?,
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Self::Up(child, _) = self {
            // It may have ended already, and there is nobody to tell.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
