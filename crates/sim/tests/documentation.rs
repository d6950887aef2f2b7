//! The table of faults (`docs/FAULTS.md`) and the tests that it names do not part.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Rows that the table must have.
const ROWS: std::ops::RangeInclusive<u32> = 1..=28;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names that begin with `row_` and two digits.
fn row_names(text: &str) -> BTreeSet<String> {
    let is_of_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let words = text.split(|character| !is_of_name(character));
    let is_row = |word: &&str| {
        let number = word.strip_prefix("row_").and_then(|rest| rest.get(..3));
        number.is_some_and(|number| number[..2].parse::<u32>().is_ok() && number.ends_with('_'))
    };
    words.filter(is_row).map(String::from).collect()
}

fn rust_sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("listed").path();
        if path.is_dir() {
            rust_sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_row_of_the_table_names_its_tests() {
    let table = read(&root().join("docs/FAULTS.md"));
    for row in ROWS {
        let start = format!("| {row} |");
        let line = table.lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("docs/FAULTS.md lacks row {row}"));
        let prefix = format!("row_{row:02}_");
        let names = row_names(line);
        assert!(!names.is_empty(), "row {row} names no test");
        assert!(names.iter().all(|name| name.starts_with(&prefix)), "row {row} names another row's test");
        for path in line.split('`').filter(|part| part.starts_with("crates/")) {
            assert!(root().join(path).exists(), "row {row} names {path}, which does not exist");
        }
    }
}

#[test]
fn the_table_names_the_tests_that_exist() {
    let mut sources = Vec::new();
    rust_sources(&root().join("crates"), &mut sources);
    let tests: BTreeSet<String> = sources.iter().flat_map(|path| row_names(&read(path))).collect();
    let named = row_names(&read(&root().join("docs/FAULTS.md")));
    assert_eq!(named, tests, "left: docs/FAULTS.md, right: the tests");
}
