//! The systemd units of the source tree, and roles that run as these specify: with their command
//! line, as an ordinary user, with only the listed capabilities. A role counts as started when it
//! notifies that it is ready.

use crate::TIMEOUT;
use crate::hosts::{Network, SWITCH};
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Id of `nobody`, an ordinary user.
const USER: u32 = 65_534;

/// A parsed unit file.
pub(crate) struct Unit {
    pub(crate) path: PathBuf,
    text: String,
}

impl Unit {
    pub(crate) fn of(role: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../../../deploy/systemd/nicekv-{role}@.service"));
        let text = fs::read_to_string(&path).unwrap();
        Self { path, text }
    }

    pub(crate) fn value(&self, field: &str) -> Option<&str> {
        self.text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix('='))
    }

    /// The unit's command line, with other paths than those of an installed package.
    fn command(&self, name: &str, configuration: &Path) -> Vec<String> {
        let words = self.value("ExecStart").expect("it starts something").split(' ');
        let word = |word: &str| match word {
            "/usr/bin/nicekv" => env!("CARGO_BIN_EXE_nicekv").to_owned(),
            word => word.replace("/etc/nicekv", &configuration.to_string_lossy()).replace("%i", name),
        };
        words.map(word).collect()
    }

    /// The capabilities of a field, except `without`, as arguments of `setpriv`.
    fn capabilities(&self, field: &str, without: &str) -> String {
        let names = self.value(field).unwrap_or_default().split_ascii_whitespace();
        let names = names.filter(|name| *name != without);
        let names = names.map(|name| format!(",+{}", name.trim_start_matches("CAP_").to_ascii_lowercase()));
        format!("-all{}", names.collect::<String>())
    }
}

/// A running role; it is killed when it is dropped.
pub(crate) struct Running {
    pub(crate) name: String,
    child: Child,
    log: PathBuf,
}

/// Starts a role on a host as its unit would. `directory` stands for /etc/nicekv of an installed
/// host, and gets the log.
pub(crate) fn start(network: &Network, role: &str, name: &str, host: &str, directory: &Path) -> Running {
    let unit = Unit::of(role);
    let (socket, log) = (directory.join(format!("{name}.notify")), directory.join(format!("{name}.log")));
    _ = fs::remove_file(&socket);
    let ready = UnixDatagram::bind(&socket).unwrap();
    chown(&socket, Some(USER), Some(USER)).unwrap();
    ready.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut command = reduced(network, &unit, name, host, directory, "");
    command.env("NOTIFY_SOCKET", &socket);
    let output = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
    command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output).process_group(0);
    let child = command.spawn().unwrap();
    let running = Running { name: name.into(), child, log };
    let mut message = [0; 16];
    let told = ready.recv(&mut message);
    assert_eq!(told.ok().map(|length| &message[..length]), Some(&b"READY=1"[..]), "{}", running.log());
    running
}

/// The command of a unit on a host, with the unit's user and capabilities except `without`.
fn reduced(
    network: &Network,
    unit: &Unit,
    name: &str,
    host: &str,
    directory: &Path,
    without: &str,
) -> Command {
    let user = USER.to_string();
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &network.name(host), "setpriv", "--reuid", &user, "--regid", &user]);
    command.args(["--clear-groups", "--no-new-privs", "--bounding-set"]);
    let bounding = unit.capabilities("CapabilityBoundingSet", without);
    let ambient = unit.capabilities("AmbientCapabilities", without);
    command.args([&bounding, "--inh-caps", &ambient, "--ambient-caps", &ambient]);
    command.args(unit.command(name, directory));
    command
}

/// Runs the switch with all capabilities of its unit except `without`. Returns its exit code and
/// its output.
pub(crate) fn fails_without(network: &Network, without: &str, directory: &Path) -> (Option<i32>, String) {
    let mut command = reduced(network, &Unit::of("switch"), "switch", SWITCH, directory, without);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    // If it has not failed by now, its exit code will show that it was killed.
    _ = child.kill();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Gives a directory to the user that roles run as.
pub(crate) fn give(directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    chown(directory, Some(USER), Some(USER)).unwrap();
}

impl Running {
    pub(crate) fn log(&self) -> String {
        format!("{}: {}", self.name, fs::read_to_string(&self.log).unwrap_or_default())
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops the role with the signal that systemd uses.
    pub(crate) fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{}", self.log());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
