//! The switch that a mutated crate gets, which its mutants query.

use std::error::Error;
use std::path::Path;

/// A module that is appended to the crate's root. `NICEKV_MUTANT` chooses a mutant. With
/// `NICEKV_MUTANTS_REACHED` the ids of all mutants that are reached are appended to that file, once
/// per process.
const SWITCH: &str = r#"
#[allow(unreachable_pub, dead_code, clippy::all)]
mod __mutants {
    extern crate std;
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
    const UNKNOWN: u32 = u32::MAX;
    const RECORD: u32 = u32::MAX - 1;
    static CHOSEN: AtomicU32 = AtomicU32::new(UNKNOWN);
    static REACHED: [AtomicBool; 1 << 14] = [const { AtomicBool::new(false) }; 1 << 14];
    pub fn is(id: u32) -> bool {
        match CHOSEN.load(Relaxed) {
            UNKNOWN => { learn(); is(id) }
            RECORD => { record(id); false }
            chosen => chosen == id,
        }
    }
    fn learn() {
        let chosen = match std::env::var_os("NICEKV_MUTANTS_REACHED") {
            Some(_) => RECORD,
            None => std::env::var("NICEKV_MUTANT").ok().and_then(|id| id.parse().ok()).unwrap_or(0),
        };
        CHOSEN.store(chosen, Relaxed);
    }
    #[cold]
    fn record(id: u32) {
        if REACHED[id as usize].swap(true, Relaxed) { return; }
        let path = std::env::var_os("NICEKV_MUTANTS_REACHED").unwrap();
        let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
        file.write_all(std::format!("{id}\n").as_bytes()).unwrap();
    }
}
"#;

/// Adds the switch, and the standard library that it needs, to a crate's root.
pub(crate) fn add_to(tree: &Path, of_crate: &str) -> Result<(), Box<dyn Error>> {
    let root = tree.join(of_crate).join("src/lib.rs");
    let mut text = std::fs::read_to_string(&root)?;
    // Replaced by spaces of the same length, so that the places of mutants in this file stay right.
    if let Some(start) = text.find("#![cfg_attr(")
        && text[start..].lines().next().is_some_and(|line| line.contains("no_std"))
    {
        let end = text[start..].find('\n').map_or(text.len(), |length| start + length);
        text.replace_range(start..end, &" ".repeat(end - start));
    }
    Ok(std::fs::write(&root, text + SWITCH)?)
}
