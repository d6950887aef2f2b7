//! CLIENT REPLY: commands that have no reply.

/// Which they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quiet {
    /// All, until further notice.
    is_off: bool,
    /// The one that runs, and the next one.
    now: bool,
    next: bool,
}

impl Quiet {
    /// ON.
    pub(crate) fn end(&mut self) {
        (self.is_off, self.now) = (false, false);
    }

    /// OFF.
    pub(crate) fn begin(&mut self) {
        self.is_off = true;
    }

    /// SKIP.
    pub(crate) fn skip(&mut self) {
        (self.now, self.next) = (true, !self.is_off);
    }

    /// Whether the command that runs has no reply.
    pub(crate) fn is_on(self) -> bool {
        self.is_off || self.now
    }

    /// The next command runs.
    pub(crate) fn go_on(&mut self) {
        self.now = std::mem::take(&mut self.next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_skipped_or_all_are() {
        let mut quiet = Quiet::default();
        let mut told = Vec::new();
        let commands: [fn(&mut Quiet); 9] =
            [|_| (), Quiet::skip, |_| (), |_| (), Quiet::begin, |_| (), Quiet::skip, Quiet::end, |_| ()];
        for command in commands {
            command(&mut quiet);
            told.push(!quiet.is_on());
            quiet.go_on();
        }
        assert_eq!(told, [true, false, false, true, false, false, false, true, true]);
    }
}
