//! Redis servers for comparison, each in the network namespace of a host.
//!
//! They are tuned for speed: no snapshots, no delayed replies, replication without a file in
//! between.

use crate::error::{BenchError, Result};
use crate::netns::Hosts;
use crate::workload::VALUE_BYTES;
use nicekv_lab::topology::Host;
use nicekv_runtime::Stop;
use std::fs::File;
use std::io;
use std::net::SocketAddrV4;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SERVER: &str = "redis-server";
const BENCHMARK: &str = "redis-benchmark";
/// The release that the targets refer to.
const MAJOR_VERSION: &str = "7";
const READY_TIMEOUT: Duration = Duration::from_secs(10);
const READY_POLL: Duration = Duration::from_millis(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The version of the installed server, which must be a Redis 7.
pub(crate) fn installed_version() -> Result<String> {
    let missing = |found: &str| {
        BenchError::Environment(format!(
            "nicekv bench peers compares with Redis {MAJOR_VERSION}, found {found}: install {SERVER} {MAJOR_VERSION}, on Debian `apt install redis-server`"
        ))
    };
    let output = Command::new(SERVER).arg("--version").output().map_err(|_| missing("none"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split_once("v=").and_then(|(_, rest)| rest.split_whitespace().next()).unwrap_or("");
    match version.split('.').next() {
        Some(MAJOR_VERSION) => Ok(version.to_owned()),
        _ => Err(missing(if version.is_empty() { "something else" } else { version })),
    }
}

/// How a server is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Role {
    pub(crate) address: SocketAddrV4,
    /// The server that it replicates.
    pub(crate) primary: Option<SocketAddrV4>,
    /// It syncs every write before it answers.
    pub(crate) durable: bool,
}

/// A primary and its replicas, each on a node's host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// Number of servers.
    pub(crate) count: u8,
    pub(crate) port: u16,
    pub(crate) durable: bool,
}

impl Group {
    /// Address of the primary, which is on the first node.
    pub(crate) fn address(self) -> SocketAddrV4 {
        self.member(0)
    }

    fn member(self, index: u8) -> SocketAddrV4 {
        SocketAddrV4::new(Host::Node(index).address(), self.port)
    }

    /// Returns all servers, the primary first, once a write sent from `client` reaches every
    /// replica.
    pub(crate) fn start(
        self,
        hosts: &Hosts,
        client: Host,
        parent: &Path,
        stop: &Stop,
    ) -> Result<Vec<RedisServer>> {
        let start = |index| {
            let primary = (index > 0).then(|| self.address());
            let role = Role { address: self.member(index), primary, durable: self.durable };
            hosts.inside(Host::Node(index), || RedisServer::start(role, parent))?
        };
        let mut servers = (0..self.count).map(start).collect::<Result<Vec<_>>>()?;
        // From the host of the load, so that the network between is tried, too.
        let ready = || servers[0].wait_until_ready(usize::from(self.count) - 1, stop);
        hosts.inside(client, ready)??;
        Ok(servers)
    }
}

/// A running server, killed when it is dropped.
pub(crate) struct RedisServer {
    child: Child,
    address: SocketAddrV4,
    directory: TempDir,
}

impl RedisServer {
    /// Starts a server in the calling thread's network namespace, with its files below `parent`.
    pub(crate) fn start(role: Role, parent: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("nicekv-bench-redis-")
            .tempdir_in(parent)
            .map_err(BenchError::system(format!("make a directory below {}", parent.display())))?;
        let log =
            File::create(directory.path().join("log")).map_err(BenchError::system("make redis' log"))?;
        let child = command(role, directory.path())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(Stdio::null())
            // Its own process group, so that Ctrl-C does not end it before the load.
            .process_group(0)
            .spawn()
            .map_err(BenchError::system(format!("start {SERVER}")))?;
        Ok(Self { child, address: role.address, directory })
    }

    pub(crate) fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Waits until the server answers, and a write reaches `replicas` replicas.
    pub(crate) fn wait_until_ready(&mut self, replicas: usize, stop: &Stop) -> Result<()> {
        let give_up = Instant::now() + READY_TIMEOUT;
        while !self.reaches(replicas).unwrap_or(false) {
            if stop.is_stopped() {
                return Err(BenchError::Interrupted);
            }
            let ended = self.child.try_wait().map_err(BenchError::system("look after redis"))?;
            if ended.is_some() || Instant::now() > give_up {
                let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
                let last = log.lines().last().unwrap_or("nothing");
                return Err(BenchError::Failed(format!(
                    "{SERVER} at {} is not ready; it printed: {last}",
                    self.address
                )));
            }
            std::thread::sleep(READY_POLL);
        }
        Ok(())
    }

    /// Whether the server answers, and `replicas` replicas acknowledge a write.
    fn reaches(&self, replicas: usize) -> redis::RedisResult<bool> {
        let mut connection = connect(self.address)?;
        if replicas == 0 {
            return redis::cmd("PING").exec(&mut connection).map(|()| true);
        }
        redis::cmd("SET").arg("ready").arg("yes").exec(&mut connection)?;
        let reached: usize = redis::cmd("WAIT").arg(replicas).arg(1_000).query(&mut connection)?;
        Ok(reached == replicas)
    }
}

/// A connection for commands whose speed does not matter, from the calling thread's network
/// namespace.
pub(crate) fn connect(server: SocketAddrV4) -> redis::RedisResult<redis::Connection> {
    let connection =
        redis::Client::open(format!("redis://{server}"))?.get_connection_with_timeout(CONNECT_TIMEOUT)?;
    connection.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    Ok(connection)
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(role: Role, directory: &Path) -> Command {
    let yes_or_no = |yes| if yes { "yes" } else { "no" };
    let mut command = Command::new(SERVER);
    command.current_dir(directory);
    command.args(["--bind", &role.address.ip().to_string(), "--port", &role.address.port().to_string()]);
    command.args(["--daemonize", "no", "--protected-mode", "no", "--save", ""]);
    command.args(["--appendonly", yes_or_no(role.durable), "--appendfsync", "always"]);
    command.args(["--auto-aof-rewrite-percentage", "0", "--latency-tracking", "no"]);
    command.args(["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]);
    command.args(["--repl-diskless-load", "swapdb", "--repl-disable-tcp-nodelay", "no"]);
    if let Some(primary) = role.primary {
        command.args(["--replicaof", &format!("{} {}", primary.ip(), primary.port())]);
    }
    command
}

/// Options of `redis-benchmark`: connections, commands at once on each, and keys (1: always the
/// same key).
pub(crate) fn options(connections: usize, pipeline: usize, keys: u32) -> Vec<String> {
    let mut options = vec!["-c".to_owned(), connections.to_string(), "-P".into(), pipeline.to_string()];
    options.extend(["-d".into(), VALUE_BYTES.to_string()]);
    if keys > 1 {
        options.extend(["-r".into(), keys.to_string()]);
    }
    options
}

/// Ops per second as `redis-benchmark -t name` measures them, from the calling thread's network
/// namespace; `None` if it is not installed.
pub(crate) fn benchmark(
    server: SocketAddrV4,
    name: &str,
    operations: u64,
    options: &[String],
) -> Result<Option<f64>> {
    let output = Command::new(BENCHMARK)
        .args(["-h", &server.ip().to_string(), "-p", &server.port().to_string(), "-t", name, "--csv"])
        .args(["-n", &operations.to_string()])
        .args(options)
        .stdin(Stdio::null())
        .output();
    let output = match output {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        output => output.map_err(BenchError::system(format!("start {BENCHMARK}")))?,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    rate(&text).map(Some).ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        BenchError::Failed(format!("{BENCHMARK} failed: {}", errors.lines().last().unwrap_or(&text)))
    })
}

/// Reads the rate in the line `"GET","145000.00",…`, which follows the header.
fn rate(csv: &str) -> Option<f64> {
    csv.lines().find_map(|line| line.split('"').nth(3)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_what_redis_benchmark_prints() {
        let header = r#""test","rps","avg_latency_ms","min_latency_ms""#;
        assert_eq!(rate(&format!("{header}\n\"GET\",\"145985.41\",\"0.358\",\"0.064\"\n")), Some(145_985.41));
        assert_eq!(rate(header), None);
    }
}
