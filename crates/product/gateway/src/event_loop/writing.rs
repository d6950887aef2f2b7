//! Writing replies: all replies of a turn to one connection share a write.

use super::{Gateway, enqueue};
use nicekv_proto::{Duration, Now};

/// How long replies wait for others of the same pipeline. Nodes whose requests left together mostly
/// answer within this time.
const DELAY_MAX: Duration = Duration::from_micros(200);

impl Gateway {
    /// Writes the replies of this turn, and delayed replies that are due.
    pub(super) fn write_all(&mut self, now: Now) {
        if !self.delayed.is_empty() && self.delayed_until_ns <= now.boot_ns {
            let mut delayed = std::mem::take(&mut self.delayed);
            for slot in delayed.drain(..) {
                if let Some(connection) = self.connections.get_mut(slot) {
                    connection.delayed = false;
                    self.write(slot);
                }
            }
            self.delayed = delayed;
        }
        for index in 0..self.turn.len() {
            if !self.delay(self.turn[index], now) {
                self.write(self.turn[index]);
            }
        }
        self.turn.clear();
    }

    /// Delays the connection's replies if they may wait; returns whether it did.
    fn delay(&mut self, slot: usize, now: Now) -> bool {
        let Some(connection) = self.connections.get_mut(slot) else { return false };
        if !connection.may_delay() {
            return false;
        }
        if self.delayed.is_empty() {
            self.delayed_until_ns = now.after(DELAY_MAX);
        }
        if !std::mem::replace(&mut connection.delayed, true) {
            self.delayed.push(slot);
        }
        true
    }

    fn write(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let was_held_back = connection.is_held_back();
        let has_written = connection.flush() > 0;
        self.memory.count(connection);
        if connection.is_finished() {
            self.close(slot);
        } else if connection.wants_read()
            || (was_held_back && !connection.is_held_back())
            || (has_written && !connection.reads.is_empty())
        {
            enqueue(&mut self.queue, slot, connection);
        }
    }
}
