//! `nicekv-mutants TREE < mutants.json > places.json`: weaves mutants into the sources in `TREE`,
//! which is a copy.
//!
//! `cargo mutants` builds and tests one tree per mutant, which takes about a minute each here, with
//! the simulator. A woven mutant is a branch that is taken only with `NICEKV_MUTANT=id`: one build
//! holds hundreds of mutants, and each costs only its tests:
//!
//! ```text
//!   a < b          (if crate::__mutants::is(7) { a <= b } else { a < b })
//!   fn f() { … }   fn f() { if crate::__mutants::is(8) { return 1; } … }
//!   P => …         P if !crate::__mutants::is(9) => …
//! ```
//!
//! `nicekv-mutants plants DIRECTORY TREE > plants.json` does the same with planted bugs
//! ([`plants`]).
//!
//! The input has objects of `cargo mutants --list --json` with an additional `id`. The output says
//! where each mutant's text is in the written files, so that compiler errors can be attributed to
//! mutants, and which mutants cannot be woven. `.ci/mutants` does the rest.

mod edits;
mod find;
mod plants;
mod switch;

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};

/// A mutant in the output of `cargo mutants`; fields that are not needed are omitted.
#[derive(Deserialize)]
struct Mutant {
    id: u32,
    file: String,
    genre: Genre,
    span: Span,
    replacement: String,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
enum Genre {
    FnValue,
    BinaryOperator,
    UnaryOperator,
    MatchArm,
    MatchArmGuard,
    StructField,
}

#[derive(Deserialize)]
struct Span {
    start: Position,
    end: Position,
}

/// Line and column count from 1; the column is in characters.
#[derive(Clone, Copy, Deserialize)]
struct Position {
    line: usize,
    column: usize,
}

/// Byte ranges in the written file: the mutant's own text, and in `around` the whole edit, which
/// mutants of one expression share.
#[derive(Serialize)]
struct Place {
    id: u32,
    file: String,
    own: [usize; 2],
    around: [usize; 2],
}

#[derive(Default, Serialize)]
struct Woven {
    places: Vec<Place>,
    /// Mutants in code that the compiler evaluates, where nothing can be switched at run time.
    not_woven: Vec<u32>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let tree = match &arguments[..] {
        [verb, directory, tree] if verb.as_os_str() == "plants" => return weave_plants(directory, tree),
        [tree] => tree,
        _ => return Err("nicekv-mutants TREE < mutants.json, or nicekv-mutants plants DIRECTORY TREE".into()),
    };
    let mutants: Vec<Mutant> = serde_json::from_reader(std::io::stdin().lock())?;
    let mut by_file: BTreeMap<&str, Vec<&Mutant>> = BTreeMap::new();
    for mutant in &mutants {
        by_file.entry(&mutant.file).or_default().push(mutant);
    }
    let mut woven = Woven::default();
    for (file, mutants) in &by_file {
        weave_file(tree, file, mutants, &mut woven)?;
    }
    add_switches(tree, by_file.keys().copied())?;
    serde_json::to_writer(std::io::stdout().lock(), &woven)?;
    Ok(())
}

fn weave_plants(directory: &Path, tree: &Path) -> Result<(), Box<dyn Error>> {
    let plants = plants::Plants::load(directory)?;
    let woven = plants.woven(tree)?;
    for (file, text) in &woven {
        std::fs::write(tree.join(file), text)?;
    }
    add_switches(tree, woven.keys().copied())?;
    serde_json::to_writer(std::io::stdout().lock(), &plants.listed())?;
    Ok(())
}

/// Adds the switch that woven code queries to the crates of these files.
fn add_switches<'a>(tree: &Path, files: impl Iterator<Item = &'a str>) -> Result<(), Box<dyn Error>> {
    let crates: BTreeSet<&str> = files.filter_map(|file| file.split("/src/").next()).collect();
    crates.into_iter().try_for_each(|of_crate| switch::add_to(tree, of_crate))
}

fn weave_file(tree: &Path, file: &str, mutants: &[&Mutant], woven: &mut Woven) -> Result<(), Box<dyn Error>> {
    let path = tree.join(file);
    let text = std::fs::read_to_string(&path)?;
    let edits = find::edits(&text, mutants).map_err(|error| format!("{file}: {error}"))?;
    let placed: BTreeSet<u32> = edits.ids().collect();
    woven.not_woven.extend(mutants.iter().map(|mutant| mutant.id).filter(|id| !placed.contains(id)));
    let (text, places) = edits.apply(&text);
    let places = places.into_iter().map(|(id, own, around)| Place { id, file: file.into(), own, around });
    woven.places.extend(places);
    Ok(std::fs::write(path, text)?)
}
