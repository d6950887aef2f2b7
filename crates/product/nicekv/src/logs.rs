//! Logs: what happens to a role, an event a line on standard error, for people or as JSON; nothing per request.
//!
//! ```text
//!   2026-11-23T02:05:06.123Z INFO partition role=node name=node-0 partition=3 epoch=7 standing=consistent primary=2 leads=false
//!   {"time":"2026-11-23T02:05:06.123Z","level":"info","event":"partition","role":"node","name":"node-0","partition":3,…}
//! ```
//!
//! Roles do not write: a thread beside them asks each how it is, as metrics do, and says what has changed ([`watch`]). So nobody who serves
//! clients waits for whoever reads, and what came and went between two looks is not told. Other crates say what they know through the `log`
//! crate; libraries are not heard.

pub(crate) mod events;
pub(crate) mod watch;

use log::kv::{Error, Key, Value, VisitSource};
use log::{LevelFilter, Log, Metadata, Record};
use nicekv_config::{LogFormat, LogLevel, LogSection};
use nicekv_operator::failure::Failure;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Targets that are ours begin with it.
const TARGET: &str = "nicekv";
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// `--log-level`, `--log-format`
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct LogArguments {
    /// Which events are written to standard error [default: as the file says, or info]
    #[arg(long, value_enum)]
    log_level: Option<LogLevel>,
    /// How they are written [default: as the file says, or line]
    #[arg(long, value_enum)]
    log_format: Option<LogFormat>,
}

impl LogArguments {
    /// What the command line says, or else the file.
    pub(crate) fn or(self, file: LogSection) -> LogSection {
        LogSection {
            level: self.log_level.unwrap_or(file.level),
            format: self.log_format.unwrap_or(file.format),
        }
    }
}

/// From here on events are written.
pub(crate) fn begin(LogSection { level, format }: LogSection) -> Result<(), Failure> {
    log::set_max_level(match level {
        LogLevel::Off => LevelFilter::Off,
        LogLevel::Error => LevelFilter::Error,
        LogLevel::Warn => LevelFilter::Warn,
        LogLevel::Info => LevelFilter::Info,
        LogLevel::Debug => LevelFilter::Debug,
    });
    let format = *FORMAT.get_or_init(|| format);
    log::set_boxed_logger(Box::new(Emitter(format))).map_err(Failure::environment)
}

/// Whether standard error is for programs, and standard output for nobody.
pub(crate) fn is_json() -> bool {
    FORMAT.get() == Some(&LogFormat::Json)
}

/// Says what ends the process, where that is an event.
pub(crate) fn failed(failure: &Failure) -> bool {
    if is_json() {
        log::error!(reason = failure.to_string().as_str(); "failed");
    }
    is_json()
}

struct Emitter(LogFormat);

impl Log for Emitter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with(TARGET)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let line = line(self.0, SystemTime::now(), record);
        // Nobody could be told that this fails.
        _ = std::io::stderr().lock().write_all(line.as_bytes());
    }

    fn flush(&self) {}
}

fn line(format: LogFormat, at: SystemTime, record: &Record<'_>) -> String {
    let (time, event, mut fields) = (time(at), record.args().to_string(), Fields(format, String::new()));
    record.key_values().visit(&mut fields).expect("it takes everything");
    let (level, fields) = (record.level().as_str(), fields.1);
    match format {
        LogFormat::Line => format!("{time} {level} {event}{fields}\n"),
        LogFormat::Json => {
            let (level, event) = (level.to_ascii_lowercase(), json(&event));
            format!("{{\"time\":\"{time}\",\"level\":\"{level}\",\"event\":{event}{fields}}}\n")
        }
    }
}

fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn needs_quotes(sign: char) -> bool {
    sign.is_whitespace() || sign.is_control() || sign == '"'
}

/// Everything but time, level and event.
struct Fields(LogFormat, String);

impl<'kvs> VisitSource<'kvs> for Fields {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        let Self(format, fields) = self;
        let is_bare = value.to_u64().is_some() || value.to_i64().is_some() || value.to_bool().is_some();
        let text = value.to_string();
        _ = match format {
            LogFormat::Json if is_bare => write!(fields, ",{}:{text}", json(key.as_str())),
            LogFormat::Json => write!(fields, ",{}:{}", json(key.as_str()), json(&text)),
            LogFormat::Line if text.contains(needs_quotes) => {
                write!(fields, " {key}={text:?}")
            }
            LogFormat::Line => write!(fields, " {key}={text}"),
        };
        Ok(())
    }
}

/// Of RFC 3339, in UTC, to the millisecond.
fn time(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}.{:03}Z",
        second % 60,
        since.subsec_millis()
    )
}

/// The date that is so many days after 1970-01-01: years that begin in March, in cycles of 400.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (cycle, of_cycle) = (days / 146_097, days % 146_097);
    let year = (of_cycle - of_cycle / 1460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let of_year = of_cycle - (365 * year + year / 4 - year / 100);
    let since_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * since_march + 2) / 5 + 1;
    let month = if since_march < 10 { since_march + 3 } else { since_march - 9 };
    (cycle * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_795_399_506, "2026-11-23T02:05:06.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(time(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
        assert_eq!(time(UNIX_EPOCH + Duration::from_millis(1_007)), "1970-01-01T00:00:01.007Z");
    }

    fn written(format: LogFormat, fields: &[(&str, Value<'_>)]) -> String {
        let fields = &fields;
        let record = Record::builder()
            .args(format_args!("tried"))
            .level(log::Level::Warn)
            .target(TARGET)
            .key_values(fields)
            .build();
        line(format, UNIX_EPOCH, &record)
    }

    #[test]
    fn an_event_is_a_line_whatever_is_in_it() {
        let fields = [
            ("partition", Value::from(3u64)),
            ("leads", Value::from(true)),
            ("why", Value::from("two\nlines, \"quoted\"")),
        ];
        let bell = written(LogFormat::Line, &[("name", Value::from("\x1b[31m"))]);
        assert!(bell.ends_with("WARN tried name=\"\\u{1b}[31m\"\n"), "{bell}");
        assert_eq!(
            written(LogFormat::Line, &fields),
            "1970-01-01T00:00:00.000Z WARN tried partition=3 leads=true why=\"two\\nlines, \\\"quoted\\\"\"\n"
        );
        let line = written(LogFormat::Json, &fields);
        assert_eq!(line.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        let expected = serde_json::json!({
            "time": "1970-01-01T00:00:00.000Z", "level": "warn", "event": "tried",
            "partition": 3, "leads": true, "why": "two\nlines, \"quoted\"",
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn libraries_are_not_heard() {
        let of = |target| Metadata::builder().target(target).level(log::Level::Error).build();
        assert!(Emitter(LogFormat::Line).enabled(&of("nicekv_gateway::requests")));
        assert!(!Emitter(LogFormat::Line).enabled(&of("ureq::unit")));
    }
}
