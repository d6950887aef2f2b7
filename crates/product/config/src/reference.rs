//! The reference page of the configuration, as Markdown.

use crate::cluster::RoleKind;
use crate::schema::{Default, HOSTS, INSTANCES, Key, PORTS, SECTIONS, Section};
use std::fmt::Write as _;

const ROLES: [RoleKind; 4] = [RoleKind::Metadata, RoleKind::Node, RoleKind::Switch, RoleKind::Gateway];
const INTRODUCTION: &str = "\
# Configuration

Each role has a file of TOML. `nicekv config print ROLE` prints one with every key and its default,
and `nicekv config check FILE…` checks files alone and against each other. One file for all roles
works, too (`nicekv config print cluster`). Relative paths are relative to the working directory.

`nicekv config reference` prints this page. Keys marked * must be the same in all files of a cluster.
";

/// Every section with a table of its keys.
pub fn reference() -> String {
    let mut text = INTRODUCTION.to_owned();
    for section in SECTIONS {
        append(section, &mut text);
        match section.name {
            "metadata" => append(&INSTANCES, &mut text),
            "switches" => [&PORTS, &HOSTS].into_iter().for_each(|inner| append(inner, &mut text)),
            _ => {}
        }
    }
    text
}

fn append(section: &Section, text: &mut String) {
    let title = match (section.name, section.is_list) {
        ("", _) => "Before the first section".into(),
        (name, false) => format!("`[{name}]`"),
        (name, true) => match name.split_once('.') {
            Some((outer, inner)) => format!("Items of `{inner}` in `{outer}`"),
            None => format!("`[[{name}]]`"),
        },
    };
    _ = write!(text, "\n## {title}\n\n{}\n\n", section.help);
    text.push_str("| key | type | default | read by | meaning |\n| --- | --- | --- | --- | --- |\n");
    section.keys.iter().for_each(|key| row(key, text));
}

fn row(key: &Key, text: &mut String) {
    let default = match key.default {
        Default::Required => "required".into(),
        Default::Value(value) => format!("`{value}`"),
        Default::Absent(absent) => absent.into(),
    };
    let readers: Vec<_> =
        ROLES.iter().filter(|role| key.roles.contains(role)).map(|role| role.name()).collect();
    let readers = if readers.len() == ROLES.len() { "all".into() } else { readers.join(", ") };
    let shared = if key.is_shared { " *" } else { "" };
    let cells = [&key.expected(), &*default, &readers, key.help].map(|cell| cell.replace('|', "\\|"));
    _ = writeln!(text, "| `{}`{shared} | {} |", key.name, cells.join(" | "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// With `NICEKV_CONFIGURATION=write` the test writes the page.
    #[test]
    fn reference_page_matches_the_schema() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/configuration.md");
        if std::env::var_os("NICEKV_CONFIGURATION").is_some_and(|value| value == "write") {
            std::fs::write(&path, reference()).unwrap();
        }
        let page = std::fs::read_to_string(&path).unwrap();
        let advice = "run `NICEKV_CONFIGURATION=write cargo test -p nicekv-config`";
        assert!(page == reference(), "docs/reference/configuration.md is out of date: {advice}");
    }
}
