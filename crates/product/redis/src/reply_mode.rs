//! CLIENT REPLY: whether commands have replies.

/// Which commands get no reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyMode {
    /// OFF: no command gets a reply.
    is_off: bool,
    /// SKIP: the current command gets no reply, and the next one does not either.
    now: bool,
    next: bool,
}

impl ReplyMode {
    /// CLIENT REPLY ON.
    pub fn turn_on(&mut self) {
        (self.is_off, self.now) = (false, false);
    }

    /// CLIENT REPLY OFF.
    pub fn turn_off(&mut self) {
        self.is_off = true;
    }

    /// CLIENT REPLY SKIP.
    pub fn skip(&mut self) {
        (self.now, self.next) = (true, !self.is_off);
    }

    /// Whether the current command gets no reply.
    pub fn is_silent(self) -> bool {
        self.is_off || self.now
    }

    /// Called after each command.
    pub fn next_command(&mut self) {
        self.now = core::mem::take(&mut self.next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skip_silences_one_command_and_off_all() {
        let mut mode = ReplyMode::default();
        let mut replied = Vec::new();
        let commands: [fn(&mut ReplyMode); 9] = [
            |_| (),
            ReplyMode::skip,
            |_| (),
            |_| (),
            ReplyMode::turn_off,
            |_| (),
            ReplyMode::skip,
            ReplyMode::turn_on,
            |_| (),
        ];
        for command in commands {
            command(&mut mode);
            replied.push(!mode.is_silent());
            mode.next_command();
        }
        assert_eq!(replied, [true, false, false, true, false, false, false, true, true]);
    }
}
