//! Programs of others that the lab and tests run: whether they are installed, and which Debian package has them.
//!
//! A test that needs one begins with [`needs`], and does nothing where it is missing:
//!
//! ```no_run
//! if !nicekv_testkit::needs(&["redis-server"], "replies_are_those_of_redis") {
//!     return;
//! }
//! ```

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Programs whose package has another name.
const PACKAGES: [(&str, &str); 15] = [
    ("etcd", "etcd-server"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
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

/// Whether tests run in full, as `.ci/long` has them: all seeds, all bounds. Else they run a sample that takes a minute.
pub fn runs_long() -> bool {
    std::env::var_os("NICEKV_TESTS").is_some_and(|value| value == "long")
}

/// The Debian package that has a program.
pub fn package(program: &str) -> &str {
    PACKAGES.iter().find(|(known, _)| *known == program).map_or(program, |(_, package)| package)
}

/// Whether a program is installed, where commands are looked for.
pub fn is_installed(program: &str) -> bool {
    find(program, &std::env::var_os("PATH").unwrap_or_default()).is_some()
}

/// Whether all of these are installed. If not, says on standard error that a test is not run, and what to install.
pub fn needs(programs: &[&str], test: &str) -> bool {
    let missing: Vec<_> = programs.iter().filter(|program| !is_installed(program)).collect();
    let (Some(first), missing) = (missing.first(), &missing) else { return true };
    let names = if missing.len() == 1 { (**first).to_owned() } else { format!("{missing:?}") };
    let mut packages: Vec<_> = missing.iter().map(|program| package(program)).collect();
    packages.dedup();
    not_run(&format!("{names}: apt install {}", packages.join(" ")), test);
    false
}

/// Says on standard error that a test is not run, past the test harness, which swallows what the macros print.
pub fn not_run(needs: &str, test: &str) {
    // Nobody may be there to read it.
    let _ = writeln!(std::io::stderr(), "NOT RUN (needs {needs}): {test}");
}

fn find(program: &str, path: &std::ffi::OsStr) -> Option<PathBuf> {
    let is_executable = |file: &Path| {
        file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path).map(|directory| directory.join(program)).find(|file| is_executable(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_where_commands_are_and_nothing_else_is_one() {
        let scratch = tempfile::tempdir().unwrap();
        let (first, second) = (scratch.path().join("first"), scratch.path().join("second"));
        for directory in [&first, &second] {
            std::fs::create_dir(directory).unwrap();
            std::fs::write(directory.join("tool"), "").unwrap();
        }
        std::fs::create_dir(second.join("directory")).unwrap();
        std::fs::set_permissions(second.join("tool"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::join_paths([&first, &second]).unwrap();
        assert_eq!(find("tool", &path), Some(second.join("tool")));
        assert_eq!((find("directory", &path), find("none", &path)), (None, None));
    }

    #[test]
    fn packages_are_named() {
        assert_eq!((package("nft"), package("strace")), ("nftables", "strace"));
        assert!(!needs(&["no-such-program-of-nicekv"], "packages_are_named (which tries this)"));
    }
}
