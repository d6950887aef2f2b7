//! MONITOR: shows every command to the connections that have called it.
//!
//! ```text
//!   command, on any thread ─▶ a line ─▶ the threads that have monitors ─▶ their outputs
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum bytes of lines that wait for a thread; if they exceed it, the thread closes its
/// monitors.
const WAITING_BYTES_MAX: usize = 8 << 20;

/// The MONITOR connections of a thread, and the lines that wait for them.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    count: AtomicUsize,
    waiting: Mutex<Waiting>,
}

/// Lines to send to the MONITOR connections of a thread.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) lines: Vec<Arc<[u8]>>,
    bytes: usize,
    /// Lines were dropped because too many waited.
    pub(crate) is_overrun: bool,
}

impl Monitors {
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn join(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds a line.
    pub(crate) fn show(&self, line: &Arc<[u8]>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.bytes + line.len() > WAITING_BYTES_MAX {
            waiting.is_overrun = true;
            return;
        }
        waiting.bytes += line.len();
        waiting.lines.push(line.clone());
    }

    pub(crate) fn take(&self) -> Waiting {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The line that MONITOR shows for a command: time, database, peer, and arguments, quoted as in
/// Redis.
pub(crate) fn line<'a>(
    unix_ms: u64,
    database: u16,
    peer: &str,
    words: impl Iterator<Item = &'a [u8]>,
) -> Arc<[u8]> {
    let mut line =
        format!("+{}.{:06} [{database} {peer}]", unix_ms / 1_000, unix_ms % 1_000 * 1_000).into_bytes();
    for word in words {
        line.extend_from_slice(b" \"");
        for byte in word {
            match byte {
                b'\\' | b'"' => line.extend_from_slice(&[b'\\', *byte]),
                b'\n' => line.extend_from_slice(b"\\n"),
                b'\r' => line.extend_from_slice(b"\\r"),
                b'\t' => line.extend_from_slice(b"\\t"),
                7 => line.extend_from_slice(b"\\a"),
                8 => line.extend_from_slice(b"\\b"),
                b' '..=b'~' => line.push(*byte),
                _ => line.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
            }
        }
        line.push(b'"');
    }
    line.extend_from_slice(b"\r\n");
    line.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_quoted_as_in_redis() {
        let words = [&b"set"[..], b"a\"b\\", b"\x00\r\n\x7f"];
        let line = line(1_700_000_000_123, 3, "127.0.0.1:5", words.into_iter());
        let expected = "+1700000000.123000 [3 127.0.0.1:5] \"set\" \"a\\\"b\\\\\" \"\\x00\\r\\n\\x7f\"\r\n";
        assert_eq!(String::from_utf8_lossy(&line), expected);
    }

    #[test]
    fn lines_are_dropped_when_too_many_wait() {
        let monitors = Monitors::default();
        let line: Arc<[u8]> = vec![b'x'; 1 << 20].into();
        (0..20).for_each(|_| monitors.show(&line));
        let waiting = monitors.take();
        assert_eq!((waiting.lines.len(), waiting.is_overrun), (8, true));
        monitors.show(&line);
        assert!(!monitors.take().is_overrun);
    }
}
