//! Checks the commands, flags and paths in the documents against the program and the source tree.

use crate::Arguments;
use clap::{Command, CommandFactory, Subcommand};
use nicekv_bench::BenchCommand;
use nicekv_lab::LabCommand;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// `nicekv`, including the commands of the programs that it runs, except the simulator, which has
/// its own parser.
fn program() -> Command {
    Arguments::command()
        .mut_subcommand("lab", |_| LabCommand::augment_subcommands(Command::new("lab")))
        .mut_subcommand("bench", |_| BenchCommand::augment_subcommands(Command::new("bench")))
}

/// Collects the paths of the book's pages, relative to the root of the source tree.
fn pages(folder: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(root().join(folder)).expect("a folder of the book") {
        let entry = entry.expect("listed");
        let name = format!("{folder}/{}", entry.file_name().to_str().expect("UTF-8"));
        if entry.path().is_dir() {
            pages(&name, found);
        } else if name.ends_with(".md") {
            found.push(name);
        }
    }
}

/// Name and text of each document: README and the book.
fn documents() -> impl Iterator<Item = (String, String)> {
    let mut names = vec!["README.md".to_owned()];
    pages("docs", &mut names);
    let read = |name: String| {
        let text = std::fs::read_to_string(root().join(&name));
        let text = text.unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, text)
    };
    names.into_iter().map(read)
}

/// Lines of the documents' ```sh blocks, without comments.
fn typed(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut is_shell = false;
    for line in text.lines() {
        match line.strip_prefix("```") {
            Some(language) => is_shell = language == "sh",
            None if is_shell => lines.push(line.split(" #").next().unwrap_or_default().trim().to_owned()),
            None => {}
        }
    }
    lines.retain(|line| !line.is_empty() && !line.starts_with('#'));
    lines
}

/// Inline code in sentences that begins with `start`.
fn mentioned<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    let mut is_block = false;
    for line in text.lines() {
        is_block ^= line.starts_with("```");
        if !is_block {
            found.extend(line.split('`').skip(1).step_by(2).filter(|code| code.starts_with(start)));
        }
    }
    found
}

/// The words of a command line, if it runs this program.
fn words(line: &str) -> Option<Vec<&str>> {
    let line = line.strip_prefix("sudo ").unwrap_or(line);
    let line = ["nicekv ", "target/release/nicekv ", "target/debug/nicekv ", "cargo run --release -- "]
        .into_iter()
        .find_map(|start| line.strip_prefix(start))?;
    // The program's output may be piped to another command, which is ignored.
    let line = line.split([';', '|', '>', '<']).next().unwrap_or_default();
    Some(line.split_ascii_whitespace().map(|word| word.trim_matches(['"', '\''])).collect())
}

#[test]
fn commands_in_shell_blocks_parse() {
    let mut count = 0;
    for (name, text) in documents() {
        for line in typed(&text) {
            let Some(words) = words(&line) else { continue };
            let parsed = program().try_get_matches_from(std::iter::once("nicekv").chain(words));
            assert!(parsed.is_ok(), "{name}: {line}: {}", parsed.err().unwrap());
            count += 1;
        }
    }
    assert!(count > 30, "the documents have {count} commands: are they still found?");
}

#[test]
fn the_reference_lists_every_command() {
    let page = std::fs::read_to_string(root().join("docs/reference/cli.md")).expect("the page of commands");
    let mut missing = Vec::new();
    for command in Arguments::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = format!("nicekv {}", command.get_name());
        let mut names: Vec<String> = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set() && command.get_name() != "help")
            .map(|command| format!("{name} {}", command.get_name()))
            .collect();
        names.push(name);
        missing.extend(names.into_iter().filter(|name| !page.contains(&format!("`{name}"))));
    }
    assert!(missing.is_empty(), "docs/reference/cli.md does not list {missing:?}");
}

/// The problem with a command that a sentence mentions, often in part: its subcommands and flags
/// are checked, not its values.
fn wrong_with(words: &[&str]) -> Option<String> {
    let mut command = program();
    command.build();
    let mut command = &command;
    let mut is_name = true;
    for word in words {
        if word.ends_with('…') {
            // For alternatives such as `put|get`, only the beginning is checked.
            return None;
        }
        if let Some(flag) = word.strip_prefix("--").filter(|flag| !flag.is_empty()) {
            // The word after a flag may be its value.
            is_name = false;
            let flag: &str = flag.split('=').next().unwrap_or_default().trim_end_matches(['…', ',', '.']);
            let is_known = command.get_arguments().any(|argument| argument.get_long() == Some(flag));
            if !is_known && command.get_name() != "sim" {
                return Some(format!("`{}` has no --{flag}", command.get_name()));
            }
        } else if *word == "--" {
            return None;
        } else if is_name {
            let is_value = !word.starts_with(|first: char| first.is_ascii_lowercase());
            match command.find_subcommand(word) {
                Some(found) => command = found,
                // A command with subcommands may also be run without one: `nicekv node --config …`.
                None if is_value || command.get_positionals().next().is_some() => is_name = false,
                None => return Some(format!("`{}` has no command {word:?}", command.get_name())),
            }
        }
    }
    None
}

#[test]
fn commands_in_sentences_exist_with_their_flags() {
    let mut wrong = Vec::new();
    for (name, text) in documents() {
        for code in mentioned(&text, "nicekv ") {
            // `nicekv node add | drain | remove` stands for three commands.
            let mut parts = code["nicekv ".len()..].split(" | ");
            let first: Vec<&str> = parts.next().unwrap_or_default().split_ascii_whitespace().collect();
            let leading: Vec<&str> = first[..first.len().saturating_sub(1)].to_vec();
            let others =
                parts.map(|part| [&leading[..], &part.split_ascii_whitespace().collect::<Vec<_>>()].concat());
            let all = std::iter::once(first.clone()).chain(others.collect::<Vec<_>>());
            wrong.extend(all.filter_map(|words| Some(format!("{name}: `{code}`: {}", wrong_with(&words)?))));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn named_files_exist() {
    let mut wrong = Vec::new();
    // The mutants' files may have been renamed since they were recorded; `.ci/mutants` checks
    // these.
    for (name, text) in documents().filter(|(name, _)| name != "docs/MUTANTS.md") {
        for start in ["docs/", "deploy/", "crates/", "clients/", ".ci/"] {
            for code in mentioned(&text, start) {
                let path = code.split([' ', ':', '#', '*', '{']).next().unwrap_or_default();
                if !root().join(path).exists() {
                    wrong.push(format!("{name}: {path}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "not there: {}", wrong.join("\n"));
}

/// The anchor of a heading, on GitHub and in the book.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter(|character| character.is_alphanumeric() || " -_".contains(*character));
    kept.map(|character| if character == ' ' { '-' } else { character }).collect()
}

#[test]
fn links_lead_to_pages_and_headings_that_exist() {
    let mut wrong = Vec::new();
    for (name, text) in documents() {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let file = root().join(&name);
            let target = if path.is_empty() { file } else { file.parent().expect("a folder").join(path) };
            let has_heading = || {
                let text = std::fs::read_to_string(&target).unwrap_or_default();
                text.lines().any(|line| line.starts_with('#') && anchor(line) == heading)
            };
            if !target.exists() || !(heading.is_empty() || has_heading()) {
                wrong.push(format!("{name}: {link}"));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere: {}", wrong.join("\n"));
}

#[test]
fn every_page_is_in_the_summary_of_the_book() {
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).expect("the book has a summary");
    let mut names = Vec::new();
    pages("docs", &mut names);
    let is_missing = |name: &&String| {
        let page = &name["docs/".len()..];
        page != "SUMMARY.md" && !summary.contains(&format!("]({page})"))
    };
    let missing: Vec<_> = names.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md does not name {missing:?}");
}

#[test]
fn named_systemd_units_exist() {
    let mut count = 0;
    for (name, text) in documents() {
        for rest in text.split("nicekv-").skip(1) {
            let Some((role, _)) =
                rest.split_once('@').filter(|(role, _)| role.bytes().all(|byte| byte.is_ascii_lowercase()))
            else {
                continue;
            };
            let unit = root().join(format!("deploy/systemd/nicekv-{role}@.service"));
            assert!(unit.exists(), "{name} names nicekv-{role}@, and there is no {}", unit.display());
            count += 1;
        }
    }
    assert!(count > 10, "the documents name {count} units: are they still found?");
}
