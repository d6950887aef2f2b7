//! etcd for comparison: a cluster with a member in the network namespace of each of several hosts.
//!
//! Snapshots are put off, as they take time now and then, and timeouts are long, so that no
//! election disturbs a round.

use crate::error::{BenchError, Result};
use crate::lab::Lab;
use nicekv_lab::topology::Host;
use nicekv_runtime::Stop;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const MISSING: &str = "etcd is not installed, on Debian `apt install etcd-server`";
const SERVER: &str = "etcd";
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;
const READY_TIMEOUT: Duration = Duration::from_secs(20);
const READY_POLL: Duration = Duration::from_millis(50);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
const HEARTBEAT_MS: &str = "250";
const ELECTION_MS: &str = "2500";
/// Writes between two snapshots: more than are made in a run.
const SNAPSHOT_COUNT: &str = "100000000";
/// Size in bytes at which the database refuses writes: more than is written in a run.
const QUOTA_BYTES: &str = "8589934592";

/// The version of the installed server, if there is one.
pub(crate) fn installed_version() -> Option<String> {
    let output = Command::new(SERVER).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| line.strip_prefix("etcd Version: ").map(|version| version.trim().to_owned()))
}

/// Running members, killed when they are dropped.
pub(crate) struct EtcdCluster {
    members: Vec<(Child, SocketAddrV4)>,
    directory: TempDir,
}

impl EtcdCluster {
    /// Starts a member on each host of a lab, with its files below `parent`.
    pub(crate) fn start(lab: &Lab, hosts: &[Host], parent: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("nicekv-bench-etcd-")
            .tempdir_in(parent)
            .map_err(BenchError::system(format!("make a directory below {}", parent.display())))?;
        let mut cluster = Self { members: Vec::new(), directory };
        for host in hosts {
            let spawn = || command(*host, hosts, cluster.directory.path())?.spawn();
            let child = lab.inside(*host, spawn)?.map_err(BenchError::system(format!("start {SERVER}")))?;
            cluster.members.push((child, SocketAddrV4::new(host.address(), CLIENT_PORT)));
        }
        Ok(cluster)
    }

    /// Waits until every member follows the same leader; its address.
    pub(crate) fn wait_until_ready(&mut self, stop: &Stop) -> Result<SocketAddrV4> {
        let give_up = Instant::now() + READY_TIMEOUT;
        loop {
            if let Some(leader) = self.leader() {
                return Ok(leader);
            }
            if stop.is_stopped() {
                return Err(BenchError::Interrupted);
            }
            let has_ended = self.members.iter_mut().any(|(child, _)| !matches!(child.try_wait(), Ok(None)));
            if has_ended || Instant::now() > give_up {
                return Err(BenchError::Failed(format!(
                    "{SERVER} is not ready; it printed: {}",
                    self.last_log_line()
                )));
            }
            std::thread::sleep(READY_POLL);
        }
    }

    fn leader(&self) -> Option<SocketAddrV4> {
        let mut leader = None;
        for (_, address) in &self.members {
            let metrics = metrics(*address).ok()?;
            let has = |line: &str| metrics.lines().any(|metric| metric == line);
            if !has("etcd_server_has_leader 1") {
                return None;
            }
            leader = if has("etcd_server_is_leader 1") { Some(*address) } else { leader };
        }
        leader
    }

    fn last_log_line(&self) -> String {
        let logs = std::fs::read_dir(self.directory.path()).into_iter().flatten().flatten();
        let logs = logs.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "log"));
        let texts = logs.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
        texts.filter_map(|text| text.lines().last().map(str::to_owned)).next().unwrap_or("nothing".into())
    }
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        for (child, _) in &mut self.members {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn command(host: Host, hosts: &[Host], directory: &Path) -> io::Result<Command> {
    let url = |host: Host, port: u16| format!("http://{}:{port}", host.address());
    let members: Vec<String> = hosts.iter().map(|host| format!("{host}={}", url(*host, PEER_PORT))).collect();
    let mut command = Command::new(SERVER);
    command.args(["--name", &host.to_string(), "--initial-cluster", &members.join(",")]);
    command.arg("--data-dir").arg(directory.join(host.to_string()));
    for (flag, port) in [("client", CLIENT_PORT), ("peer", PEER_PORT)] {
        command.args([format!("--listen-{flag}-urls"), url(host, port)]);
    }
    command.args(["--advertise-client-urls", &url(host, CLIENT_PORT)]);
    command.args(["--initial-advertise-peer-urls", &url(host, PEER_PORT)]);
    command.args(["--heartbeat-interval", HEARTBEAT_MS, "--election-timeout", ELECTION_MS]);
    command.args(["--snapshot-count", SNAPSHOT_COUNT, "--quota-backend-bytes", QUOTA_BYTES]);
    command.args(["--logger", "zap", "--log-level", "error", "--log-outputs", "stderr"]);
    let log = File::create(directory.join(format!("{host}.log")))?;
    // Its own process group, so that Ctrl-C does not end it before the load.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
    Ok(command)
}

/// The metrics page of a member.
fn metrics(address: SocketAddrV4) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address.into(), ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
