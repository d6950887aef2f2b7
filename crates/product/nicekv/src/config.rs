//! `nicekv config check | print`.

use nicekv_config::{Checked, Template, findings};
use nicekv_operator::failure::Failure;
use nicekv_operator::output::print;
use std::path::PathBuf;

/// `nicekv config`
#[derive(clap::Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check configuration files, each by itself and all beside each other
    ///
    /// Every problem is a line on standard error: file, line, field, and what to do; then the exit code is 2. Nothing is started, bound or created.
    Check {
        /// Of one cluster: of its roles, or one of the whole
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Print a configuration file to begin with: every field, with its default
    Print {
        /// Whose
        #[arg(value_enum, value_name = "ROLE")]
        template: Template,
    },
}

pub(crate) fn run(command: &ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check { files } => check_all(files),
        ConfigCommand::Print { template } => print(template.text().as_bytes()),
    }
}

fn check_all(paths: &[PathBuf]) -> Result<(), Failure> {
    let (mut files, mut lines) = (Vec::new(), Vec::new());
    for path in paths {
        match Checked::read(path) {
            Ok(file) => files.push(file),
            Err(wrong) => lines.extend(wrong),
        }
    }
    for finding in findings(&files) {
        let Checked { path, text, .. } = &files[finding.file];
        let line = format!("{}{}", path.display(), finding.problem.located(text));
        if finding.is_note {
            print(format!("note: {line}\n").as_bytes())?;
        } else {
            lines.push(line);
        }
    }
    if lines.is_empty() {
        return print(files.iter().map(describe).collect::<String>().as_bytes());
    }
    let (last, others) = lines.split_last().expect("there are some");
    for line in others {
        eprintln!("nicekv: {line}");
    }
    Err(Failure::Environment(last.clone()))
}

fn describe(file: &Checked) -> String {
    let Checked { path, config, .. } = file;
    let role = config.role.map_or("the whole cluster".into(), |role| format!("a {}", role.name()));
    let names = [
        config.nodes.iter().map(|node| &*node.name).collect::<Vec<_>>(),
        config.switches.iter().map(|switch| &*switch.name).collect(),
        config.gateways.iter().map(|gateway| &*gateway.name).collect(),
    ]
    .concat();
    format!("{}: good, of {role}: {}\n", path.display(), names.join(", "))
}
