//! What is refused because a transaction was: there are none yet.
//!
//! ```text
//!             MULTI refused                     EXEC, DISCARD
//!   Nothing ───────────────▶ AfterMulti ───────────────────────────▶ Nothing
//!     │  ▲                       ▲ MULTI refused
//!     │  └── UNWATCH, EXEC, ──── │
//!     │      DISCARD             │
//!     └── WATCH refused ──▶ AfterWatch
//! ```
//!
//! A client sends MULTI, its commands and EXEC in one go, before it sees that MULTI was refused. If the commands ran, a transaction would
//! take effect by halves. So everything up to its end is refused, too, each command with an error of its own. RESET and QUIT work as ever.

use crate::error::CommandError;

/// What was refused last, and still refuses what follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Refused {
    #[default]
    Nothing,
    Watch,
    Multi,
}

impl Refused {
    /// Whether the command of this name may run.
    pub(crate) fn admit(self, name: &[u8]) -> Result<(), CommandError> {
        const AFTER_WATCH: &str = "ERR refused, as was the WATCH before: UNWATCH, DISCARD or EXEC end this, no transaction takes effect by halves";
        const AFTER_MULTI: &str = "ERR refused, as was the MULTI before: DISCARD or EXEC end this, no transaction takes effect by halves";
        let is = |word: &&str| name.eq_ignore_ascii_case(word.as_bytes());
        let admitted = || ["multi", "watch", "exec", "discard", "reset", "quit"].iter().any(is);
        match self {
            Self::Watch if !admitted() && !is(&"unwatch") => Err(CommandError::fixed(AFTER_WATCH)),
            Self::Multi if !admitted() => Err(CommandError::fixed(AFTER_MULTI)),
            _ => Ok(()),
        }
    }
}
