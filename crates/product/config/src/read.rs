//! Reading a configuration file: first the TOML, then each key by the schema, then checks that need
//! several keys.

use crate::check::{self, Problem};
use crate::cluster::{ClusterConfig, RoleKind};
use crate::error::ConfigError;
use crate::schema;
use std::path::Path;
use toml::de::DeTable;

/// Reads and checks the configuration of a role.
pub fn read(path: &Path, role: RoleKind) -> Result<ClusterConfig, ConfigError> {
    read_with(path, role, |_| {})
}

/// Reads and checks the configuration of a role; before the checks, `amend` applies the command
/// line to it.
pub fn read_with(
    path: &Path,
    role: RoleKind,
    amend: impl FnOnce(&mut ClusterConfig),
) -> Result<ClusterConfig, ConfigError> {
    let text = read_text(path)?;
    let parsed = parse_with(&text, amend).and_then(|config| config.of(role));
    parsed.map_err(|error| ConfigError::new(format!("{}{error}", path.display())))
}

pub(crate) fn read_text(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| {
        let advice = match error.kind() {
            std::io::ErrorKind::NotFound => "; `nicekv config print ROLE` prints a file to start from",
            _ => "",
        };
        ConfigError::new(format!("{}: {error}{advice}", path.display()))
    })
}

/// Parses a file. The error is the first problem, to be appended to the file's name: `:LINE: KEY:
/// why`, or `: why` if no single line is to blame.
pub(crate) fn parse_with(
    text: &str,
    amend: impl FnOnce(&mut ClusterConfig),
) -> Result<ClusterConfig, String> {
    let mut config = decode(text).map_err(|mut errors| errors.swap_remove(0))?;
    amend(&mut config);
    match check::problems(&config).first() {
        Some(problem) => Err(problem.located(text)),
        None => Ok(config),
    }
}

/// The values of a file if all keys are known and have the right type; otherwise every error, in
/// the form of [`parse_with`].
pub(crate) fn decode(text: &str) -> Result<ClusterConfig, Vec<String>> {
    let document = DeTable::parse(text).map_err(|error| vec![located(text, &error)])?;
    let problems = schema::problems(text, document.get_ref());
    if !problems.is_empty() {
        return Err(problems.iter().map(|problem: &Problem| problem.located(text)).collect());
    }
    toml::from_str(text).map_err(|error| vec![located(text, &error)])
}

/// Adds the line to an error of the TOML parser, or of the decoding of a value.
fn located(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().replace('\n', ", ");
    let Some(span) = error.span() else { return format!(": {message}") };
    let before = text.get(..span.start).unwrap_or(text);
    let (number, start) = (before.matches('\n').count() + 1, before.rfind('\n').map_or(0, |at| at + 1));
    let line = text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default().trim();
    match line.split_once('=') {
        Some((key, _)) if !message.contains(key.trim()) => format!(":{number}: {}: {message}", key.trim()),
        _ => format!(":{number}: {message}"),
    }
}
