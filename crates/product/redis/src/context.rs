//! What handlers work with.

use crate::call::Call;
use crate::error::CommandError;
use crate::host::Host;
use crate::plan::Plan;
use crate::resp::ReplyWriter;
use crate::session::Session;

/// Everything a handler works with, beside its call.
pub struct Context<'a, 'b> {
    pub unix_ms: u64,
    pub session: &'a mut Session,
    pub host: &'a dyn Host,
    pub reply: &'a mut ReplyWriter<'b>,
}

/// What a handler returns.
pub type Planned<'a> = Result<Plan<'a>, CommandError>;

/// A command's implementation.
pub type Handler = for<'a> fn(&mut Context<'_, '_>, &Call<'a>) -> Planned<'a>;
