//! The trace: prints or keeps a line for each message and fault.

use super::Cluster;
use crate::transcript::Names;

/// Where the lines of a transcript go.
#[derive(Clone, Debug)]
pub(super) enum Record {
    Nowhere,
    Printed(fn(&str)),
    Lines(Vec<String>),
}

impl Cluster {
    /// Gives each line of what happens from now on to `print`.
    pub fn trace(&mut self, print: fn(&str)) {
        self.record = Record::Printed(print);
    }

    /// Keeps what happens from now on as lines.
    pub fn keep_lines(&mut self) {
        self.record = Record::Lines(Vec::new());
    }

    /// What [`Self::keep_lines`] kept.
    pub fn take_lines(&mut self) -> Vec<String> {
        match std::mem::replace(&mut self.record, Record::Nowhere) {
            Record::Lines(lines) => lines,
            _ => Vec::new(),
        }
    }

    /// Adds a line to the transcript.
    pub fn note(&mut self, what: impl FnOnce(&Names) -> Option<String>) {
        if matches!(self.record, Record::Nowhere) {
            return;
        }
        let Some(text) = what(&self.names) else { return };
        let line = format!("{:9.3}ms {text}", self.queue.now_ns() as f64 / 1e6);
        match &mut self.record {
            Record::Lines(lines) => lines.push(line),
            Record::Printed(print) => print(&line),
            Record::Nowhere => unreachable!("nobody reads it"),
        }
    }
}
