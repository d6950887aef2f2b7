//! Documentation and code agree: the table of faults and its tests, the rules of the protocol, the
//! comments that cite them and the planted bugs that break them.

use nicekv_sim::objects::OBJECT_PLANTS;
use nicekv_sim::plants::PLANTS;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Rows that the fault table must have.
const ROWS: std::ops::RangeInclusive<u32> = 1..=40;
/// Rows of faults that are not survived yet, as the table says.
const NOT_HELD: [u32; 1] = [30];
/// Names of documents that must not be cited: they do not exist.
const GONE: [&str; 3] = ["DESIGN", "FACTS", "SCENARIOS"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).expect("crates/verify/sim").into()
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

fn files(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("listed").path();
        if path.is_dir() {
            files(&path, extensions, found);
        } else if path.extension().and_then(OsStr::to_str).is_some_and(|is| extensions.contains(&is)) {
            found.push(path);
        }
    }
}

#[test]
fn every_row_of_the_fault_table_names_its_tests() {
    let table = read(&root().join("docs/FAULTS.md"));
    for row in ROWS {
        let start = format!("| {row} |");
        let line = table.lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("docs/FAULTS.md lacks row {row}"));
        let prefix = format!("row_{row:02}_");
        let names = row_names(line);
        assert_eq!(line.contains("**not held**"), NOT_HELD.contains(&row), "row {row}");
        assert!(NOT_HELD.contains(&row) || !names.is_empty(), "row {row} names no test");
        assert!(names.iter().all(|name| name.starts_with(&prefix)), "row {row} names another row's test");
        for path in line.split('`').filter(|part| part.starts_with("crates/")) {
            assert!(root().join(path).exists(), "row {row} names {path}, which does not exist");
        }
    }
}

#[test]
fn the_fault_table_names_existing_tests() {
    let mut sources = Vec::new();
    files(&root().join("crates"), &["rs"], &mut sources);
    let tests: BTreeSet<String> = sources.iter().flat_map(|path| row_names(&read(path))).collect();
    let named = row_names(&read(&root().join("docs/FAULTS.md")));
    assert_eq!(named, tests, "left: docs/FAULTS.md, right: the tests");
}

/// The files that a section of ARCHITECTURE.md names, each by its whole path or relative to the
/// folder that was named last.
fn way(architecture: &str, heading: &str) -> BTreeSet<PathBuf> {
    let start = architecture.find(heading).unwrap_or_else(|| panic!("ARCHITECTURE.md has no {heading:?}"));
    let way = &architecture[start + heading.len()..];
    let way = &way[..way.find("\n## ").expect("something follows")];
    let mut folder = PathBuf::new();
    let mut files = BTreeSet::new();
    for part in way.split('`').skip(1).step_by(2) {
        let is_file = [".rs", ".c", ".h"].iter().any(|ending| part.ends_with(ending));
        let path = if part.starts_with("crates/") { root().join(part) } else { folder.join(part) };
        if part.starts_with("crates/") && path.is_dir() {
            folder = path;
        } else if is_file {
            assert!(path.exists(), "{heading} names {part}, which is not in {}", folder.display());
            files.insert(path);
        }
    }
    files
}

/// A newcomer can follow a put, and a get, through the code in one sitting.
#[test]
fn the_architecture_names_what_exists_and_few_files_on_the_way() {
    let architecture = read(&root().join("ARCHITECTURE.md"));
    for path in architecture.split('`').filter(|part| part.starts_with("crates/") && !part.contains(' ')) {
        assert!(root().join(path).exists(), "ARCHITECTURE.md names {path}, which does not exist");
    }
    for heading in ["## Follow a put", "## Follow a get"] {
        let files = way(&architecture, heading);
        assert!((10..=25).contains(&files.len()), "{heading}: {} files: {files:?}", files.len());
    }
}

/// The letters of the rules, and how many rules each has: protocols in general, chains and scans,
/// gets in the kernel, hot keys, transactions, messages.
const RULES: [(char, u32); 6] = [('R', 18), ('C', 12), ('G', 8), ('H', 9), ('T', 6), ('M', 3)];

/// The rules that a text cites: a letter and a number, as a word.
fn rules(text: &str) -> BTreeSet<(char, u32)> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric());
    let rule = |word: &str| {
        let of = |(letter, _): (char, u32)| Some((letter, word.strip_prefix(letter)?.parse().ok()?));
        RULES.into_iter().find_map(of)
    };
    words.filter_map(rule).collect()
}

/// The first words of the headings in the pages that `docs/PROTOCOL.md` links. A rule is defined by
/// such a heading.
fn headings() -> Vec<String> {
    let mut pages = Vec::new();
    files(&root().join("docs/internals/protocol"), &["md"], &mut pages);
    let text: String = pages.iter().map(|page| read(page)).collect();
    let headings = text.lines().filter_map(|line| line.strip_prefix("### ")?.split(' ').next());
    headings.map(String::from).collect()
}

fn defined() -> BTreeSet<(char, u32)> {
    headings().iter().flat_map(|heading| rules(heading)).collect()
}

/// Rules of objects are checked in their own crate only: elsewhere a P and a number may be a
/// measurement.
#[test]
fn cited_rules_of_objects_are_defined() {
    let headings = headings();
    let objects = root().join("crates/product/objects");
    for (path, comments) in comments().into_iter().filter(|(path, _)| path.starts_with(&objects)) {
        for word in comments.split(|character: char| !character.is_ascii_alphanumeric()) {
            let is_rule = word.strip_prefix('P').is_some_and(|number| number.parse::<u32>().is_ok());
            let is_defined = headings.iter().any(|heading| heading == word);
            assert!(!is_rule || is_defined, "{} cites {word}, which no page defines", path.display());
        }
    }
}

#[test]
fn the_list_of_rules_is_complete() {
    let list = read(&root().join("docs/PROTOCOL.md"));
    for rule in headings() {
        assert!(list.contains(&format!("{rule} ")), "docs/PROTOCOL.md does not list {rule}");
    }
}

/// The sources of the product, including C, without tests.
fn comments() -> Vec<(PathBuf, String)> {
    let mut sources = Vec::new();
    files(&root().join("crates"), &["rs", "c", "h"], &mut sources);
    let comment = |line: &str| line.split_once("//").map(|(_, comment)| comment.to_owned());
    let comments = |path: PathBuf| {
        let text = read(&path);
        let is_c = path.extension().is_some_and(|extension| extension != "rs");
        let comments =
            if is_c { text } else { text.lines().filter_map(comment).collect::<Vec<_>>().join("\n") };
        (path, comments)
    };
    sources.into_iter().map(comments).collect()
}

/// The planted bugs, in their order.
fn planted() -> Vec<Table> {
    let text = read(&root().join("crates/verify/mutants/plants/catalogue.toml"));
    let mut catalogue: Table = text.parse().expect("the catalogue is TOML");
    let Some(Value::Array(plants)) = catalogue.remove("plant") else { panic!("it has plants") };
    let table = |plant| match plant {
        Value::Table(plant) => plant,
        other => panic!("no plant: {other}"),
    };
    plants.into_iter().map(table).collect()
}

fn text_of<'a>(plant: &'a Table, field: &str) -> &'a str {
    plant[field].as_str().expect("a text")
}

#[test]
fn every_rule_is_defined_cited_and_broken_by_a_plant() {
    let defined = defined();
    let all = RULES.into_iter().flat_map(|(letter, count)| (1..=count).map(move |number| (letter, number)));
    assert_eq!(defined, all.collect(), "the rules of docs/PROTOCOL.md");
    let mut cited = BTreeSet::new();
    for (path, comments) in comments() {
        let here = rules(&comments);
        let unknown: Vec<_> = here.difference(&defined).collect();
        assert!(unknown.is_empty(), "{} cites rules {unknown:?}, which no document defines", path.display());
        // Code that weaves or hunts planted bugs does not count.
        let is_product = !path
            .components()
            .any(|part| matches!(part.as_os_str().to_str(), Some("sim" | "tests" | "mutants")));
        cited.extend(here.into_iter().filter(|_| is_product));
    }
    assert_eq!(cited, defined, "left: rules that the product's comments cite");
    let planted: BTreeSet<_> = planted().iter().flat_map(|plant| rules(text_of(plant, "rule"))).collect();
    assert_eq!(planted, defined, "left: rules that a planted bug breaks");
}

#[test]
fn the_simulator_hunts_the_planted_bugs_that_it_is_to_find() {
    let planted = planted();
    let found_by = |finder: &str| -> Vec<&str> {
        let names_it = |plant: &&Table| {
            let finders = plant["found_by"].as_array().expect("a list");
            finders.iter().any(|found_by| found_by.as_str() == Some(finder))
        };
        planted.iter().filter(names_it).map(|plant| text_of(plant, "name")).collect()
    };
    let hunted: Vec<&str> = PLANTS.iter().map(|plant| plant.name).collect();
    assert_eq!(found_by("sim"), hunted, "right: what `nicekv sim --plant` looks for");
    let hunted: Vec<&str> = OBJECT_PLANTS.iter().map(|plant| plant.name).collect();
    assert_eq!(found_by("objects"), hunted, "right: what `nicekv sim --objects --plant` looks for");
}

#[test]
fn comments_cite_existing_documents() {
    for (path, comments) in comments() {
        for gone in GONE {
            assert!(!comments.contains(gone), "{} cites {gone}", path.display());
        }
        let words =
            comments.split(|character: char| character.is_whitespace() || "`()[],;".contains(character));
        for name in words.map(|word| word.trim_end_matches(['.', ':'])).filter(|word| word.ends_with(".md")) {
            let exists = [root(), root().join("docs")].iter().any(|folder| folder.join(name).exists());
            assert!(exists, "{} cites {name}", path.display());
        }
    }
}
