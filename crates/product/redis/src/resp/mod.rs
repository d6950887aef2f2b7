//! RESP, versions 2 and 3: requests in, replies out.

mod arguments;
mod large_arguments;
mod parser;
mod reply;
mod reply_buffer;
#[cfg(test)]
mod test_grant;

pub use arguments::{ArgumentList, Arguments};
pub use large_arguments::BufferGrant;
pub use parser::{Parser, ProtocolError, WantedBuffer};
pub use reply::{Protocol, ReplyWriter};
pub use reply_buffer::{ErrorCounts, ReplyBuffer};
