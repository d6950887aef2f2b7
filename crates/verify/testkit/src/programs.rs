//! External programs that tests need: whether they are installed, and which Debian package has
//! them.

use std::io::Write;
use std::process::{Command, Stdio};

/// Programs whose package has another name.
const PACKAGES: [(&str, &str); 21] = [
    ("etcd", "etcd-server"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("ovs-appctl", "openvswitch-switch"),
    ("ovs-ofctl", "openvswitch-switch"),
    ("ovs-vsctl", "openvswitch-switch"),
    ("ovs-vswitchd", "openvswitch-switch"),
    ("ovsdb-server", "openvswitch-switch"),
    ("ovsdb-tool", "openvswitch-switch"),
    ("redis-benchmark", "redis-tools"),
    ("redis-cli", "redis-tools"),
    ("script", "bsdutils"),
    ("objdump", "binutils"),
    ("setpriv", "util-linux"),
    ("sysctl", "procps"),
    ("systemd-analyze", "systemd"),
    ("systemd-sysusers", "systemd"),
    ("dpkg-deb", "dpkg"),
    ("systemctl", "systemd"),
    ("tc", "iproute2"),
    ("umount", "mount"),
];

/// The Debian package that has a program.
pub fn package(program: &str) -> &str {
    PACKAGES.iter().find(|(known, _)| *known == program).map_or(program, |(_, package)| package)
}

/// Whether a program is in `PATH`.
pub fn is_installed(program: &str) -> bool {
    let mut shell = Command::new("sh");
    shell.args(["-c", "command -v \"$0\"", program]).stdout(Stdio::null()).stderr(Stdio::null());
    shell.status().is_ok_and(|status| status.success())
}

/// Whether all of these are installed. If not, prints that the test is skipped, and what to
/// install.
pub fn needs(programs: &[&str], test: &str) -> bool {
    let missing: Vec<_> = programs.iter().filter(|program| !is_installed(program)).collect();
    let (Some(first), missing) = (missing.first(), &missing) else { return true };
    let names = if missing.len() == 1 { (**first).to_owned() } else { format!("{missing:?}") };
    let mut packages: Vec<_> = missing.iter().map(|program| package(program)).collect();
    packages.dedup();
    not_run(&format!("{names}: apt install {}", packages.join(" ")), test);
    false
}

/// Prints that a test is skipped, past the test harness, which hides the output of passing tests.
pub fn not_run(needs: &str, test: &str) {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "NOT RUN (needs {needs}): {test}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_are_named_with_their_packages() {
        assert_eq!((package("nft"), package("strace")), ("nftables", "strace"));
        let test = "missing_programs_are_named_with_their_packages (tries this)";
        assert!(needs(&["sh"], test) && !needs(&["no-such-program-of-nicekv"], test));
    }
}
