//! Logs: events of roles on standard error, one per line, as text or JSON. Requests are not logged.
//!
//! ```text
//!   2026-11-23T02:05:06.123Z INFO partition role=node name=node-0 partition=3 epoch=7 standing=consistent primary=2 leads=false
//!   {"time":"2026-11-23T02:05:06.123Z","level":"info","event":"partition","role":"node","name":"node-0","partition":3,…}
//! ```
//!
//! Roles do not write logs themselves: a separate thread observes each role, as for metrics, and
//! logs what has changed ([`watch`]). So a slow reader of the log never delays a thread that serves
//! clients; a state that lasts only between two observations is not logged. Our other crates log
//! through the `log` crate; events of third-party crates are dropped.

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

/// Log targets of our crates begin with this prefix.
const TARGET: &str = "nicekv";
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// `--log-level`, `--log-format`
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct LogArguments {
    /// Least severe events that are logged to standard error [default: from the file, or info]
    #[arg(long, value_enum)]
    log_level: Option<LogLevel>,
    /// Format of events [default: from the file, or line]
    #[arg(long, value_enum)]
    log_format: Option<LogFormat>,
}

impl LogArguments {
    /// The flags; where one is absent, the setting of the file.
    pub(crate) fn or(self, file: LogSection) -> LogSection {
        LogSection {
            level: self.log_level.unwrap_or(file.level),
            format: self.log_format.unwrap_or(file.format),
        }
    }
}

/// Starts logging.
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

/// Whether events are JSON; if so, standard output is not used.
pub(crate) fn is_json() -> bool {
    FORMAT.get() == Some(&LogFormat::Json)
}

/// If events are JSON, logs the failure that ends the process; otherwise returns false, and the
/// caller prints it.
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
        // If standard error fails, there is nowhere to report that.
        _ = std::io::stderr().lock().write_all(line.as_bytes());
    }

    fn flush(&self) {}
}

fn line(format: LogFormat, at: SystemTime, record: &Record<'_>) -> String {
    let (time, event, mut fields) = (time(at), record.args().to_string(), Fields(format, String::new()));
    record.key_values().visit(&mut fields).expect("fields accept every value");
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

/// The fields after time, level and event, as text.
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

/// RFC 3339, in UTC, with milliseconds.
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

/// The year, month and day of a number of days since 1970-01-01. It counts years from March, in
/// cycles of 400 years.
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
    fn timestamps_follow_the_calendar() {
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
    fn events_are_one_line_whatever_they_contain() {
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
    fn third_party_events_are_dropped() {
        let of = |target| Metadata::builder().target(target).level(log::Level::Error).build();
        assert!(Emitter(LogFormat::Line).enabled(&of("nicekv_gateway::requests")));
        assert!(!Emitter(LogFormat::Line).enabled(&of("ureq::unit")));
    }
}
