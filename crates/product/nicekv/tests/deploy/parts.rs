//! Tests of parts of a deployment: the capabilities of the switch, and the package.

use crate::files::switch_file;
use crate::hosts::{Network, SWITCH};
use crate::units::{fails_without, give, start};
use crate::{NODES, ROLES};
use nicekv_testkit::{needs, not_run};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Tested with XDP, which needs the most capabilities.
#[test]
fn switch_needs_exactly_the_capabilities_of_its_unit() {
    let name = "switch_needs_exactly_the_capabilities_of_its_unit";
    if !rustix::process::geteuid().is_root() {
        return not_run("root", name);
    }
    if !needs(&["ip", "ethtool", "sysctl", "setpriv"], name) {
        return;
    }
    let mut network = Network::new();
    network.add(NODES[0]);
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    give(&directory.path().join("data"));
    let text = switch_file();
    let (before, rest) = text.split_once("ports = [\n").unwrap();
    let (_, after) = rest.split_once("\n]\n").unwrap();
    let ports = "ports = [{ number = 1, device = \"port-1\", hook = \"xdp\" }]\n";
    let text = format!("{before}{ports}{after}").replace("# data_directory", "data_directory");
    let data = directory.path().join("data");
    let text = text.replace("/var/lib/nicekv", data.to_str().unwrap());
    fs::write(directory.path().join("switch.toml"), text).unwrap();
    start(&network, "switch", "switch", SWITCH, directory.path()).stop();
    for needed in ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"] {
        let (code, told) = fails_without(&network, needed, directory.path());
        assert_eq!(code, Some(2), "without {needed}: {told}");
        assert!(told.contains("nicekv: "), "without {needed}: {told}");
    }
}

/// Installs the package in an empty root: its scripts run, and it contains the binary, the units
/// and the files.
#[test]
fn package_is_built_and_installed() {
    let name = "package_is_built_and_installed";
    if !rustix::process::geteuid().is_root() {
        return not_run("root", name);
    }
    if !needs(&["dpkg", "dpkg-deb", "objdump", "systemd-sysusers"], name) {
        return;
    }
    let (directory, program) = (tempfile::tempdir().unwrap(), env!("CARGO_BIN_EXE_nicekv"));
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut build = Command::new(tree.join("deploy/debian/build"));
    build.arg(directory.path()).envs([("NICEKV_BINARY", program), ("NICEKV_COMPRESSION", "none")]);
    let built = build.output().unwrap();
    assert!(built.status.success(), "{built:?}");
    let package = fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
    let root = directory.path().join("root");
    for path in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"] {
        fs::create_dir_all(root.join(path)).unwrap();
    }
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let mut install = Command::new("dpkg");
    install.arg(format!("--root={}", root.display())).args([
        "--force-script-chrootless",
        "--force-depends",
        "-i",
    ]);
    let installed = install.arg(&package).output().unwrap();
    assert!(installed.status.success(), "{installed:?}");
    for role in ROLES {
        let printed =
            Command::new(root.join("usr/bin/nicekv")).args(["config", "print", role]).output().unwrap();
        assert_eq!(fs::read(root.join(format!("etc/nicekv/{role}.toml"))).unwrap(), printed.stdout);
        assert!(root.join(format!("usr/lib/systemd/system/nicekv-{role}@.service")).exists());
    }
    let users = fs::read_to_string(root.join("etc/passwd")).unwrap();
    let data = fs::metadata(root.join("var/lib/nicekv")).unwrap();
    let owner = std::os::unix::fs::MetadataExt::uid(&data);
    assert!(users.contains(&format!("nicekv:x:{owner}:")), "{users}");
}
