//! A lab for one test, which is removed when the test ends. Used by tests of stubs and of the real
//! program; [`crate::program`] says which it is.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use nicekv_lab::LAB_VARIABLE;

/// A lab, whether or not it is up. Dropping it takes it down, also in a panic.
pub(crate) struct LabUnderTest {
    name: String,
    veths_before: BTreeSet<String>,
}

impl LabUnderTest {
    /// A lab that is not up.
    pub(crate) fn new(name: &str) -> Self {
        Self { name: format!("test-{}-{name}", std::process::id()), veths_before: veths() }
    }

    /// A lab that is ready.
    pub(crate) fn up(name: &str, arguments: &[&str]) -> Self {
        let lab = Self::new(name);
        let output = lab.succeeds(&[&["up"], arguments].concat());
        assert!(text(&output.stdout).starts_with("ready resp=127.0.0.1:6379 "), "{output:?}");
        lab
    }

    /// `nicekv lab ARGUMENTS`
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(crate::program());
        command.arg("lab").args(arguments).env(LAB_VARIABLE, &self.name);
        command
    }

    pub(crate) fn succeeds(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        output
    }

    /// Checks that the command fails with exit code 2 and one line that contains `why`.
    pub(crate) fn refuses(&self, arguments: &[&str], why: &str) {
        let output = self.command(arguments).output().unwrap();
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {line}");
        assert!(line.contains(why) && line.lines().count() == 1, "{arguments:?}: {line}");
    }

    /// The state of the host's process, as `status --json` shows it.
    pub(crate) fn state_of(&self, host: &str) -> String {
        self.host(host)["state"].as_str().unwrap().to_owned()
    }

    /// The entry of a host in `status --json`.
    pub(crate) fn host(&self, host: &str) -> serde_json::Value {
        // Without the metadata service, `status` shows only the hosts, and its exit code is not 0.
        let output = self.command(&["status", "--json"]).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let hosts = status["hosts"].as_array().unwrap();
        hosts.iter().find(|entry| entry["name"] == host).unwrap().clone()
    }

    /// The configuration file of the lab's processes.
    #[allow(dead_code, reason = "not every test that shares this file needs it")]
    pub(crate) fn config(&self) -> String {
        format!("/run/nicekv/lab-{}/config.toml", self.name)
    }

    /// The name of the lab, which its commands find in their environment.
    #[allow(dead_code, reason = "not every test that shares this file needs it")]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Takes the lab down, and checks that nothing is left.
    pub(crate) fn down(&self) {
        self.succeeds(&["down"]);
        self.assert_nothing_left();
    }

    pub(crate) fn namespace_prefix(&self) -> String {
        format!("nicekv-{}-", self.name)
    }

    pub(crate) fn namespaces(&self) -> Vec<String> {
        let names = entries("/run/netns");
        names.into_iter().filter(|name| name.starts_with(&self.namespace_prefix())).collect()
    }

    /// Number of living processes with the lab's name in their environment, in any namespace.
    pub(crate) fn processes(&self) -> usize {
        let mark = format!("{LAB_VARIABLE}={}\0", self.name);
        let of_lab = |pid: &String| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.windows(mark.len()).any(|window| window == mark.as_bytes())
        };
        entries("/proc").iter().filter(|pid| of_lab(pid)).count()
    }

    pub(crate) fn assert_nothing_left(&self) {
        assert_eq!(self.namespaces(), [""; 0]);
        assert_eq!(self.processes(), 0);
        // The name of another lab may begin with this one's.
        let mine = format!("lab-{}", self.name);
        let is_mine = |file: &String| file.split('.').next() == Some(&mine);
        let files: Vec<String> = entries("/run/nicekv").into_iter().filter(is_mine).collect();
        assert_eq!(files, [""; 0]);
        let veths: Vec<String> = veths().difference(&self.veths_before).cloned().collect();
        assert_eq!(veths, [""; 0]);
    }
}

impl Drop for LabUnderTest {
    fn drop(&mut self) {
        // Errors are ignored: a second panic would abort the test.
        let _ = self.command(&["down"]).output();
    }
}

fn entries(directory: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The veth interfaces in the operator's own namespace.
fn veths() -> BTreeSet<String> {
    let output = Command::new("ip").args(["-o", "link", "show", "type", "veth"]).output().unwrap();
    text(&output.stdout).lines().map(str::to_owned).collect()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) use nicekv_testkit::not_run;
