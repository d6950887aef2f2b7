//! What `docs` say and what is there do not part: the table of faults and its tests, the rules of the protocol, the comments that cite
//! them and the bugs that break them.

use nicekv_sim::objects::OBJECT_PLANTS;
use nicekv_sim::plants::PLANTS;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Rows that the table must have.
const ROWS: std::ops::RangeInclusive<u32> = 1..=40;
/// Rows of faults that are not survived yet; the table says so.
const NOT_HELD: [u32; 1] = [30];
/// Documents that were never in the tree.
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
fn every_row_of_the_table_names_its_tests() {
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
fn the_table_names_the_tests_that_exist() {
    let mut sources = Vec::new();
    files(&root().join("crates"), &["rs"], &mut sources);
    let tests: BTreeSet<String> = sources.iter().flat_map(|path| row_names(&read(path))).collect();
    let named = row_names(&read(&root().join("docs/FAULTS.md")));
    assert_eq!(named, tests, "left: docs/FAULTS.md, right: the tests");
}

/// A file is named by its whole path, or in the folder that was named last.
#[test]
fn the_architecture_names_what_exists() {
    let architecture = read(&root().join("ARCHITECTURE.md"));
    for path in architecture.split('`').filter(|part| part.starts_with("crates/") && !part.contains(' ')) {
        assert!(root().join(path).exists(), "ARCHITECTURE.md names {path}, which does not exist");
    }
    let start = architecture.find("## Follow a put").expect("the way of a put is drawn");
    let way = &architecture[start..];
    let way = &way[..way[2..].find("\n## ").expect("something follows")];
    let mut folder = String::new();
    let mut files = 0;
    for part in way.split('`').skip(1).step_by(2) {
        if part.starts_with("crates/") && root().join(part).is_dir() {
            folder = part.into();
        } else if part.ends_with(".rs") && !part.starts_with("crates/") {
            let exists = root().join(&folder).join(part).exists();
            assert!(exists, "the way of a put names {part}, which is not in {folder}");
            files += 1;
        }
    }
    assert!(files > 40, "{files}");
}

/// The rules' letters, and how many of each there are: of all protocols, of chains and scans, of gets in the kernel, of hot keys, of transactions, and of messages.
const RULES: [(char, u32); 6] = [('R', 18), ('C', 12), ('G', 8), ('H', 9), ('T', 6), ('M', 3)];

/// Rules that a text cites: a letter and a number, as a word.
fn rules(text: &str) -> BTreeSet<(char, u32)> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric());
    let rule = |word: &str| {
        let of = |(letter, _): (char, u32)| Some((letter, word.strip_prefix(letter)?.parse().ok()?));
        RULES.into_iter().find_map(of)
    };
    words.filter_map(rule).collect()
}

/// Rules that `docs/PROTOCOL.md` defines, each under a heading of its own.
fn defined() -> BTreeSet<(char, u32)> {
    let text = read(&root().join("docs/PROTOCOL.md"));
    let headings = text.lines().filter_map(|line| line.strip_prefix("### "));
    headings.flat_map(|heading| rules(heading.split(' ').next().unwrap_or_default())).collect()
}

/// The product's sources without their tests, C included, and their comments.
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
        // What plants bugs does not count, nor what only looks for them.
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
fn the_simulator_looks_for_the_bugs_that_it_is_said_to_find() {
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
fn comments_cite_no_document_that_is_not_in_the_tree() {
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
