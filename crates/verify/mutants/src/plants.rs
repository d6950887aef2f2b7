//! Planted bugs: small edits of the sources, each of which breaks a rule and must be found. A check
//! that has not been shown to find bugs proves nothing.
//!
//! They are not in the product. `plants/*.toml` has them as text, and this module weaves them into
//! a copy of the tree, each behind a switch that is on only with `NICEKV_MUTANT=id`, like a mutant:
//!
//! ```toml
//! [[plant]]
//! name = "adopt-nothing"
//! rule = "R3"
//! about = "A new primary does not ask for decisions that it lacks."
//! found_by = ["sim"]                       # `nicekv-sim --plant NAME`; or a test by its name, "sim/integration answers_of_…"
//!
//! [[edit]]
//! file = "crates/product/replica/src/modes/ordered/epoch.rs"
//! before = "if target > self.sequence.logged() {"
//! after = "if target > self.sequence.logged() && !PLANTED(\"adopt-nothing\") {"
//! ```
//!
//! The text `before` must be in its file exactly once, so an edit that no longer fits is noticed
//! ([`Plants::woven`]).

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Precedes a bug's name in an edit.
const PLACE: &str = "PLANTED(\"";

/// A planted bug.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plant {
    name: String,
    /// The rule of docs/PROTOCOL.md that the bug breaks; empty if it breaks none.
    rule: String,
    about: String,
    /// The programs and tests that find the bug.
    found_by: Vec<String>,
    /// The bug's name in edits, if two plants hunt the same bug in different ways.
    bug: Option<String>,
}

/// A change of one file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    file: String,
    before: String,
    /// Contains `PLANTED("name")` where the bug decides.
    after: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalogue {
    #[serde(default)]
    plant: Vec<Plant>,
    #[serde(default)]
    edit: Vec<Edit>,
}

/// All planted bugs.
pub(crate) struct Plants {
    plants: Vec<Plant>,
    edits: Vec<Edit>,
    /// Numbers of bugs, by their names in edits.
    ids: BTreeMap<String, u32>,
}

/// A planted bug as `.ci/plants` reads it, which runs the programs that must find it.
#[derive(Serialize)]
pub(crate) struct Listed<'a> {
    name: &'a str,
    rule: &'a str,
    about: &'a str,
    found_by: &'a [String],
    id: u32,
}

impl Plants {
    /// Loads the planted bugs in the files of a directory.
    ///
    /// # Errors
    /// A file cannot be parsed, a name is used twice, or an edit and its plants do not match.
    pub(crate) fn load(directory: &Path) -> Result<Self, String> {
        let (mut plants, mut edits) = (Vec::new(), Vec::new());
        let entries = fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let catalogue: Catalogue =
                toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
            plants.extend(catalogue.plant);
            edits.extend(catalogue.edit);
        }
        Self::of(plants, edits)
    }

    fn of(plants: Vec<Plant>, edits: Vec<Edit>) -> Result<Self, String> {
        let mut names = BTreeSet::new();
        if let Some(twice) = plants.iter().find(|plant| !names.insert(&plant.name)) {
            return Err(format!("two plants have the name {}", twice.name));
        }
        let bugs: BTreeSet<&str> = plants.iter().map(Plant::bug).collect();
        let ids: BTreeMap<_, _> = bugs.into_iter().map(str::to_owned).zip(1..).collect();
        let edited: BTreeSet<&str> = edits.iter().flat_map(|edit| planted(&edit.after)).collect();
        if let Some(unknown) = edited.iter().find(|bug| !ids.contains_key(**bug)) {
            return Err(format!("an edit has {PLACE}{unknown}\"), but no plant has that name"));
        }
        if let Some(missing) = ids.keys().find(|bug| !edited.contains(bug.as_str())) {
            return Err(format!("the plant {missing} has no edit"));
        }
        if let Some(plain) = edits.iter().find(|edit| planted(&edit.after).next().is_none()) {
            return Err(format!("an edit of {} plants nothing: {:?}", plain.file, plain.after));
        }
        Ok(Self { plants, edits, ids })
    }

    /// The edited files, by their paths in `tree`.
    ///
    /// # Errors
    /// Lists every edit that does not fit, with its plants.
    pub(crate) fn woven(&self, tree: &Path) -> Result<BTreeMap<&str, String>, String> {
        let (mut texts, mut wrong) = (BTreeMap::new(), Vec::new());
        for edit in &self.edits {
            let text = match texts.get(edit.file.as_str()) {
                Some(text) => Ok(String::clone(text)),
                None => fs::read_to_string(tree.join(&edit.file)),
            };
            let names = planted(&edit.after).collect::<Vec<_>>().join(", ");
            let text = match text {
                Ok(text) => text,
                Err(error) => {
                    wrong.push(format!("{names}: {}: {error}", edit.file));
                    continue;
                }
            };
            match text.matches(&edit.before).count() {
                1 => {
                    texts.insert(edit.file.as_str(), text.replacen(&edit.before, &self.after(edit), 1));
                }
                count => {
                    let before = edit.before.trim();
                    wrong.push(format!(
                        "{names}: {} has this text {count} times, not once:\n{before}",
                        edit.file
                    ));
                }
            }
        }
        if wrong.is_empty() { Ok(texts) } else { Err(wrong.join("\n")) }
    }

    /// The text `after`, with queries of the switch.
    fn after(&self, edit: &Edit) -> String {
        let mut after = edit.after.clone();
        for bug in planted(&edit.after) {
            let id = self.ids[bug];
            after = after.replace(&format!("{PLACE}{bug}\")"), &format!("crate::__mutants::is({id})"));
        }
        after
    }

    pub(crate) fn listed(&self) -> Vec<Listed<'_>> {
        let listed = self.plants.iter().map(|plant| {
            let Plant { name, rule, about, found_by, .. } = plant;
            Listed { name, rule, about, found_by, id: self.ids[plant.bug()] }
        });
        listed.collect()
    }
}

impl Plant {
    fn bug(&self) -> &str {
        self.bug.as_deref().unwrap_or(&self.name)
    }
}

/// The names of bugs in an edit.
fn planted(after: &str) -> impl Iterator<Item = &str> {
    after.split(PLACE).skip(1).filter_map(|rest| rest.split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plant(name: &str) -> Plant {
        Plant {
            name: name.into(),
            rule: "R1".into(),
            about: "Something is wrong.".into(),
            found_by: vec!["sim".into()],
            bug: None,
        }
    }

    fn edit(before: &str, after: &str) -> Edit {
        Edit { file: "a.rs".into(), before: before.into(), after: after.into() }
    }

    #[test]
    fn edits_are_woven_behind_switches() {
        let tree = tempfile::tempdir().unwrap();
        fs::write(tree.path().join("a.rs"), "if a { b } else { c }").unwrap();
        let edits = vec![
            edit("a {", "a && !PLANTED(\"one\") {"),
            edit("{ c }", "{ if PLANTED(\"two\") { d } else { c } }"),
        ];
        let plants =
            Plants::of(vec![plant("one"), plant("two")], edits).unwrap_or_else(|error| panic!("{error}"));
        let woven = plants.woven(tree.path()).unwrap();
        assert_eq!(
            woven["a.rs"],
            "if a && !crate::__mutants::is(1) { b } else { if crate::__mutants::is(2) { d } else { c } }"
        );
    }

    #[test]
    fn an_edit_that_does_not_apply_is_reported() {
        let tree = tempfile::tempdir().unwrap();
        fs::write(tree.path().join("a.rs"), "a a").unwrap();
        let of = |before| Plants::of(vec![plant("one")], vec![edit(before, "PLANTED(\"one\")")]);
        for before in ["a", "b"] {
            let plants = of(before).unwrap_or_else(|error| panic!("{error}"));
            let error = plants.woven(tree.path()).unwrap_err();
            assert!(error.starts_with("one: a.rs has this text") && error.contains("not once"), "{error}");
        }
        assert!(Plants::of(vec![plant("one")], vec![]).is_err(), "a plant without an edit");
        assert!(Plants::of(vec![], vec![edit("a", "PLANTED(\"one\")")]).is_err(), "an edit without a plant");
    }

    #[test]
    fn all_planted_bugs_apply_to_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).expect("crates/verify/mutants");
        let plants = Plants::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("plants"));
        let plants = plants.unwrap_or_else(|error| panic!("{error}"));
        plants.woven(root).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Otherwise `.ci/plants` would notice a renamed test only after it has built everything.
    #[test]
    fn tests_that_find_planted_bugs_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).expect("crates/verify/mutants");
        let plants = Plants::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("plants"));
        let plants = plants.unwrap_or_else(|error| panic!("{error}"));
        for plant in &plants.plants {
            for finder in plant.found_by.iter().filter(|finder| finder.contains(' ')) {
                let (program, test) = finder.split_once(' ').expect("it has a space");
                let name = program.split('/').next().expect("a split has a first part");
                let groups = ["product", "verify", "tools"].map(|group| root.join("crates").join(group));
                let folder = groups.iter().map(|group| group.join(name)).find(|folder| folder.exists());
                let function = format!("fn {}(", test.rsplit("::").next().expect("a split has a last part"));
                let is_there = folder.is_some_and(|folder| contains(&folder, &function));
                assert!(is_there, "{}: there is no test {finder:?}", plant.name);
            }
        }
    }

    /// Whether a source file in this folder contains the text.
    fn contains(folder: &Path, text: &str) -> bool {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| match path.is_dir() {
            true => contains(&path, text),
            false => {
                path.extension().is_some_and(|it| it == "rs")
                    && fs::read_to_string(&path).unwrap().contains(text)
            }
        })
    }
}
