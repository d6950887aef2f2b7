//! `nicekv config check | print | reference`.

use nicekv_config::{Checked, Template, findings, reference};
use nicekv_operator::failure::Failure;
use nicekv_operator::output::print;
use std::path::PathBuf;

/// `nicekv config`
#[derive(clap::Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check configuration files, each alone and all against each other
    ///
    /// Every problem is a line on standard error (file, line, key, what to do), and the exit code
    /// is 2. Nothing is started, bound or created.
    Check {
        /// Files of one cluster: one for each role, or one for all
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Print a configuration file to start from, with every key, its meaning and its default
    Print {
        /// What the file is for
        #[arg(value_enum, value_name = "ROLE")]
        template: Template,
    },
    /// Print the reference of all keys, as Markdown
    Reference,
}

pub(crate) fn run(command: &ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check { files } => check_all(files),
        ConfigCommand::Print { template } => print(template.text().as_bytes()),
        ConfigCommand::Reference => print(reference().as_bytes()),
    }
}

fn check_all(paths: &[PathBuf]) -> Result<(), Failure> {
    let (mut files, mut errors) = (Vec::new(), Vec::new());
    for path in paths {
        match Checked::read(path) {
            Ok(file) => files.push(file),
            Err(lines) => errors.extend(lines),
        }
    }
    for finding in findings(&files) {
        let Checked { path, text, .. } = &files[finding.file];
        let line = format!("{}{}", path.display(), finding.problem.located(text));
        if finding.is_note {
            print(format!("note: {line}\n").as_bytes())?;
        } else {
            errors.push(line);
        }
    }
    let Some((last, others)) = errors.split_last() else {
        return print(files.iter().map(describe).collect::<String>().as_bytes());
    };
    for line in others {
        eprintln!("nicekv: {line}");
    }
    Err(Failure::Environment(last.clone()))
}

fn describe(file: &Checked) -> String {
    let Checked { path, config, .. } = file;
    let role = config.role.map_or("all roles".into(), |role| format!("a {}", role.name()));
    let names = [
        config.nodes.iter().map(|node| &*node.name).collect::<Vec<_>>(),
        config.switches.iter().map(|switch| &*switch.name).collect(),
        config.gateways.iter().map(|gateway| &*gateway.name).collect(),
    ]
    .concat();
    format!("{}: valid, for {role}: {}\n", path.display(), names.join(", "))
}
