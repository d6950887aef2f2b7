//! The trace: prints or keeps a line for each message and fault.

use super::Cluster;
use crate::transcript::Names;

/// Where trace lines go.
#[derive(Clone, Debug)]
pub(super) enum Record {
    Nowhere,
    Printed(fn(&str)),
    Lines(Vec<String>),
}

impl Cluster {
    /// From now on passes each trace line to `print`.
    pub fn trace(&mut self, print: fn(&str)) {
        self.record = Record::Printed(print);
    }

    /// From now on keeps trace lines in memory.
    pub fn keep_lines(&mut self) {
        self.record = Record::Lines(Vec::new());
    }

    /// Takes the lines since [`Self::keep_lines`].
    pub fn take_lines(&mut self) -> Vec<String> {
        match std::mem::replace(&mut self.record, Record::Nowhere) {
            Record::Lines(lines) => lines,
            _ => Vec::new(),
        }
    }

    /// Adds a trace line.
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
