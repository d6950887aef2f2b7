//! A thread that observes the roles of this process and logs what has changed.

use super::events::{Event, Field, of_gateway, of_metadata, of_node, of_switch};
use log::kv::{ToValue, Value};
use log::{Level, Record};
use nicekv_gateway::GatewayObservation;
use nicekv_metrics::Source;
use nicekv_replica::NodeStatus;
use nicekv_runtime::metadata::MetadataObservation;
use nicekv_runtime::{Stop, SwitchObservation, Waker, now, readable, wait};
use std::time::Duration;

/// Interval between observations.
const PAUSE: Duration = Duration::from_millis(100);
/// A role that does not answer within this time is stuck, or is still reading its log.
const TIMEOUT: Duration = Duration::from_secs(2);

impl ToValue for Field {
    fn to_value(&self) -> Value<'_> {
        match self {
            Self::Number(number) => Value::from(*number),
            Self::Flag(flag) => Value::from(*flag),
            Self::Text(text) => Value::from(text.as_str()),
        }
    }
}

/// Logs an event of a role.
pub(crate) fn emit(role: &str, name: &str, event: Event) {
    let who = [("role", Field::from(role)), ("name", Field::from(name))];
    let fields: Vec<_> = who.into_iter().chain(event.fields).collect();
    let record = |arguments| {
        let fields = &&fields[..];
        log::logger().log(
            &Record::builder().args(arguments).level(event.level).target("nicekv").key_values(fields).build(),
        );
    };
    if event.level <= log::max_level() {
        record(format_args!("{}", event.name));
    }
}

/// The latest observation of a role.
#[derive(Default)]
enum Seen {
    #[default]
    Nothing,
    Node(Box<NodeStatus>),
    Switch(SwitchObservation),
    Metadata(Box<MetadataObservation>),
    Gateway(GatewayObservation),
}

struct Watched {
    source: Source,
    seen: Seen,
    is_silent: bool,
}

/// The function that the thread runs until the process stops.
type Watcher = Box<dyn FnOnce(&Stop) -> Result<(), String> + Send>;

/// Creates the watcher of these roles.
pub(crate) fn watcher(sources: Vec<Source>) -> Watcher {
    let watched = |source| Watched { source, seen: Seen::Nothing, is_silent: false };
    let mut watched: Vec<_> = sources.into_iter().map(watched).collect();
    Box::new(move |stop| {
        let waker = Waker::new().map_err(|error| error.to_string())?;
        stop.register(&waker);
        while !stop.is_stopped() {
            for watched in &mut watched {
                watched.look(stop);
            }
            wait(&mut [readable(&waker)], Some(now().after(PAUSE))).map_err(|error| error.to_string())?;
        }
        Ok(())
    })
}

impl Watched {
    fn look(&mut self, stop: &Stop) {
        let (role, name) = self.source.name();
        let (role, name) = (role, name.to_owned());
        let Some((seen, events)) = self.ask() else {
            if !self.is_silent && !stop.is_stopped() {
                emit(role, &name, Event::new(Level::Warn, "does-not-answer"));
            }
            self.is_silent = true;
            return;
        };
        if std::mem::take(&mut self.is_silent) {
            emit(role, &name, Event::new(Level::Info, "answers"));
        }
        self.seen = seen;
        events.into_iter().for_each(|event| emit(role, &name, event));
    }

    /// Observes the role again; returns the observation and the events that follow from it.
    fn ask(&self) -> Option<(Seen, Vec<Event>)> {
        Some(match &self.source {
            Source::Node(_, node, _) => {
                let told = node.ask((), TIMEOUT)?.status;
                let before = if let Seen::Node(before) = &self.seen { Some(&**before) } else { None };
                let events = of_node(before, &told);
                (Seen::Node(Box::new(told)), events)
            }
            Source::Switch(_, switch) => {
                let told = switch.ask((), TIMEOUT).flatten()?;
                let before = if let Seen::Switch(before) = &self.seen { Some(before) } else { None };
                let events = of_switch(before, &told);
                (Seen::Switch(told), events)
            }
            Source::Metadata(metadata) => {
                let told = metadata.ask((), TIMEOUT)?;
                let before = if let Seen::Metadata(before) = &self.seen { Some(&**before) } else { None };
                let events = of_metadata(before, &told);
                (Seen::Metadata(Box::new(told)), events)
            }
            Source::Gateway(_, gateway) => {
                let told = gateway.observe();
                let before = if let Seen::Gateway(before) = &self.seen { Some(before) } else { None };
                let events = of_gateway(before, &told);
                (Seen::Gateway(told), events)
            }
        })
    }
}
