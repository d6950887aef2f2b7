//! Transactions, of which there are none yet.
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

use super::{Planned, ok};
use crate::error::CommandError;
use crate::plan::{Call, Context};

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
        let admitted = ["multi", "watch", "exec", "discard", "reset", "quit"].iter().any(is);
        match self {
            Self::Watch if !admitted && !is(&"unwatch") => Err(CommandError::fixed(AFTER_WATCH)),
            Self::Multi if !admitted => Err(CommandError::fixed(AFTER_MULTI)),
            _ => Ok(()),
        }
    }
}

pub(crate) fn multi<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    context.session.refused = Refused::Multi;
    Err(CommandError::fixed("ERR MULTI is refused: there are no transactions yet"))
}

pub(crate) fn watch<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    if context.session.refused == Refused::Multi {
        return Err(CommandError::fixed("ERR WATCH inside MULTI is not allowed"));
    }
    context.session.refused = Refused::Watch;
    Err(CommandError::fixed("ERR WATCH is refused: there are no transactions yet"))
}

pub(crate) fn unwatch<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    context.session.refused = Refused::Nothing;
    ok(context)
}

pub(crate) fn exec<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    Err(match std::mem::take(&mut context.session.refused) {
        _ if call.count() > 1 => CommandError::fixed(
            "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command",
        ),
        Refused::Multi => CommandError::fixed("EXECABORT Transaction discarded because of previous errors."),
        _ => CommandError::fixed("ERR EXEC without MULTI"),
    })
}

pub(crate) fn discard<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    match std::mem::take(&mut context.session.refused) {
        Refused::Multi => ok(context),
        _ => Err(CommandError::fixed("ERR DISCARD without MULTI")),
    }
}
