//! Usage errors, printed as one line like all errors.

use clap::Parser;
use clap::error::ErrorKind;
use std::fmt::Display;
use std::process::ExitCode;

/// Parses the arguments of this process. If they ask for `--help` or `--version`, prints it and
/// exits.
///
/// # Errors
/// One line with the mistake and the command that shows help.
pub fn parse<Arguments: Parser>() -> Result<Arguments, String> {
    Arguments::try_parse().map_err(|error| {
        if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            error.exit();
        }
        let own = Arguments::command();
        usage_error(&error, own.get_bin_name().unwrap_or(own.get_name()))
    })
}

/// The error in one line. `program` is the name that users type.
fn usage_error(error: &clap::Error, program: &str) -> String {
    let text = error.to_string();
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: ")).map(str::to_owned);
    // For a refused value, clap's error has no usage line; then the first argument is the command.
    let usage = usage.unwrap_or_else(|| format!("{program} {}", std::env::args().nth(1).unwrap_or_default()));
    let words = usage.split(' ').skip(1);
    let command: String = words
        .take_while(|word| word.starts_with(|first: char| first.is_ascii_lowercase()))
        .map(|word| format!(" {word}"))
        .collect();
    let message =
        text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let message = message.map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let message = message.replace("invalid digit found in string", "not a whole number");
    format!("{}; see `nicekv{command} --help`", message.trim_start_matches("error: "))
}

/// Prints the failure on standard error and returns the exit code.
pub fn fail(message: impl Display, exit_code: u8) -> ExitCode {
    eprintln!("nicekv: {}", one_line(&message.to_string()));
    exit_code.into()
}

/// The message as one line without control characters, which libraries or peers may have put into it.
pub fn one_line(message: &str) -> String {
    let mut line = String::with_capacity(message.len());
    for character in message.chars() {
        match character {
            '\n' => line.push(' '),
            character if character.is_control() => line.extend(character.escape_default()),
            character => line.push(character),
        }
    }
    line
}
