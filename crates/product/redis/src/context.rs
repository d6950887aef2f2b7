//! The environment of a command's handler.

use crate::call::Call;
use crate::error::CommandError;
use crate::host::Host;
use crate::plan::Plan;
use crate::resp::ReplyWriter;
use crate::session::Session;

/// A handler's environment, in addition to its call.
pub struct Context<'a, 'b> {
    pub unix_ms: u64,
    pub session: &'a mut Session,
    pub host: &'a dyn Host,
    pub reply: &'a mut ReplyWriter<'b>,
}

/// The result of a handler.
pub type Planned<'a> = Result<Plan<'a>, CommandError>;

/// The function that implements a command.
pub type Handler = for<'a> fn(&mut Context<'_, '_>, &Call<'a>) -> Planned<'a>;
