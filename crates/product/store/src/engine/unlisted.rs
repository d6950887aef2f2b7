//! Removes table files that no version of the tree lists.
//!
//! A table's file exists before a version lists it. If the step that writes it fails between the
//! two, mostly for lack of space, nothing will ever list it. It is removed only if that is certain:
//! its number was assigned during the failed step, and the version that would be opened after a
//! crash is the one in memory, which does not list it.

use lsm_tree::{AbstractTree, AnyTree, TableId};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// As the library names them.
const CURRENT_FILE: &str = "current";
const TABLES_DIRECTORY: &str = "tables";

/// Removes the files of a failed step, whose first table would have had the number `first`. Only on
/// the thread that writes tables.
pub(super) fn remove(tree: &AnyTree, first: TableId) -> io::Result<()> {
    let (version, directory) = (tree.current_version(), &tree.tree_config().path);
    if version_after_crash(directory)? != version.id() {
        return Ok(());
    }
    let listed: HashSet<TableId> = version.iter_tables().map(|table| table.id()).collect();
    for file in fs::read_dir(directory.join(TABLES_DIRECTORY))? {
        let file = file?;
        let number = file.file_name().to_str().and_then(|name| name.parse::<TableId>().ok());
        let is_left = |number| (first..tree.next_table_id()).contains(&number) && !listed.contains(&number);
        if number.is_some_and(is_left) {
            fs::remove_file(file.path())?;
        }
    }
    Ok(())
}

/// Whether there is an engine.
pub(super) fn has_version(directory: &Path) -> bool {
    directory.join(CURRENT_FILE).exists()
}

/// Whether there are tables without the file that says which of them are current.
pub(super) fn lacks_version(directory: &Path) -> bool {
    let mut tables = fs::read_dir(directory.join(TABLES_DIRECTORY)).into_iter().flatten();
    !has_version(directory) && tables.next().is_some()
}

/// The damaged file of an engine that cannot be opened, as far as known: the file that names the
/// version, the version's list of tables, or the engine's directory if it may be a table.
pub(super) fn suspect(directory: &Path) -> PathBuf {
    let current = directory.join(CURRENT_FILE);
    let Ok(number) = version_after_crash(directory) else { return current };
    let version = directory.join(format!("v{number}"));
    match fs::metadata(&version) {
        Ok(list) if list.len() > 0 => directory.to_path_buf(),
        Ok(_) => version,
        // It names a version that does not exist.
        Err(_) => current,
    }
}

/// Version number that the directory names.
fn version_after_crash(directory: &Path) -> io::Result<u64> {
    let current = fs::read(directory.join(CURRENT_FILE))?;
    let number = current.first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(u64::from_le_bytes(*number))
}
