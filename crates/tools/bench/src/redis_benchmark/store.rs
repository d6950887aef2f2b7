//! The store under test: `nicekv up` on loopback, or a lab. Redis servers and the load run beside
//! it.

use super::{NODES, PEER_PORT};
use crate::error::{BenchError, Result};
use crate::lab::{CLIENT, Engine, Lab, Size, program};
use crate::redis_server::{RedisServer, Role};
use crate::session::Session;
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
    pub(super) fn up(session: &Session, is_lab: bool, engine: Engine) -> Result<Self> {
        if is_lab {
            let size = Size { nodes: NODES, replicas: NODES };
            return Lab::up(&session.plan(size, engine)).map(Self::Lab);
        }
        let mut command = Command::new(program("nicekv")?);
        command.args(["up", "--engine", engine.name(), "--resp", "127.0.0.1:0"]);
        command.arg("--data-dir").arg(session.directory().join(format!("up-{}", engine.name())));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(BenchError::system("start `nicekv up`"))?;
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let ready = lines.map_while(std::io::Result::ok).find(|line| line.starts_with("ready "));
        let address = ready.as_deref().and_then(|line| {
            line.split(' ')
                .find_map(|word| word.strip_prefix("resp="))
                .and_then(|address| address.parse().ok())
        });
        match address {
            Some(address) => Ok(Self::Up(child, address)),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                Err(BenchError::failed("`nicekv up` did not get ready"))
            }
        }
    }

    pub(super) fn address(&self) -> SocketAddrV4 {
        match self {
            Self::Up(_, address) => *address,
            Self::Lab(_) => RESP,
        }
    }

    /// Runs `work` where the load comes from.
    pub(super) fn at_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        match self {
            Self::Up(..) => Ok(work()),
            Self::Lab(lab) => lab.inside(CLIENT, work),
        }
    }

    /// Starts a Redis server where node `index` is.
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
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
