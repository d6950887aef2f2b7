//! Finding the other programs of the project.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A program was found neither in the directory of this one nor in `PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    pub program: &'static str,
    /// The directory of this program, which was searched first.
    pub directory: PathBuf,
}

impl std::error::Error for Missing {}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, directory } = self;
        write!(
            formatter,
            "{program} is neither in {} nor in PATH; build it with `{}`",
            directory.display(),
            how_to_build(program)
        )
    }
}

/// The command that builds a program with the profile of this one.
fn how_to_build(program: &str) -> String {
    let release = if cfg!(debug_assertions) { "" } else { " --release" };
    format!("cargo build{release} -p {program}")
}

/// Finds a program of the project: in the directory of this program, otherwise in `PATH`.
///
/// # Errors
/// The program is missing; the message says how to build it.
pub fn find(program: &'static str) -> Result<PathBuf, Missing> {
    let own = env::current_exe().unwrap_or_default();
    let directory = own.parent().unwrap_or(Path::new("."));
    // Test binaries are one directory deeper than programs.
    let directory = match directory.file_name() {
        Some(name) if name == "deps" => directory.parent().unwrap_or(directory),
        _ => directory,
    };
    find_in(program, directory, &env::var_os("PATH").unwrap_or_default())
        .ok_or_else(|| Missing { program, directory: directory.into() })
}

fn find_in(program: &str, directory: &Path, path: &OsStr) -> Option<PathBuf> {
    let is_executable = |file: &Path| {
        file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let directories = std::iter::once(directory.to_path_buf()).chain(env::split_paths(path));
    directories.map(|directory| directory.join(program)).find(|file| is_executable(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    #[test]
    fn program_beside_this_one_is_preferred_to_path() {
        let scratch = tempfile::tempdir().unwrap();
        let directories = ["beside", "first", "second"].map(|name| scratch.path().join(name));
        for directory in &directories {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join("tool"), "").unwrap();
        }
        let [beside, first, second] = &directories;
        let path = env::join_paths([first, second]).unwrap();
        let found = || find_in("tool", beside, &path);
        assert_eq!(found(), None, "files that are not executable are ignored");
        for directory in [second, first, beside] {
            fs::set_permissions(directory.join("tool"), Permissions::from_mode(0o755)).unwrap();
            assert_eq!(found(), Some(directory.join("tool")));
        }
    }

    #[test]
    fn missing_program_is_named_with_its_build_command() {
        let missing = find("nicekv-none").unwrap_err();
        let line = missing.to_string();
        assert!(line.contains("-p nicekv-none") && !line.contains("/deps "), "{line}");
    }
}
