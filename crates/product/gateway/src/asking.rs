//! Commands that ask the store in turns: what is asked next depends on what was answered.

use crate::answered::Answered;
use crate::error::CommandError;
use crate::reply::ReplyWriter;
use nicekv_client::Request;
use nicekv_proto::KeyspaceId;
use std::fmt::Debug;

/// Such a command, under way.
pub(crate) trait Asking: Debug + Send {
    /// The next request, of which keyspace and as which part; `None`: enough is asked for, for now or for good.
    fn next(&mut self) -> Option<(KeyspaceId, u32, Request<'_>)>;

    /// Takes the answer to the request for a part; true if nothing more is waited for.
    fn take(&mut self, part: u32, answered: Answered<'_>) -> bool;

    /// A part could not be asked for.
    fn fail(&mut self, part: u32, error: CommandError);

    /// How many requests are under way, if they may read large values at the same time.
    fn reading(&self) -> Option<usize> {
        None
    }

    /// Whether nothing more is waited for.
    fn is_over(&self) -> bool;

    /// Makes the reply of it.
    fn write(self: Box<Self>, reply: &mut ReplyWriter<'_>);

    /// Bytes that it occupies beside itself.
    fn memory(&self) -> usize;
}
