//! Who may do what: users, their passwords, and what each may run on which keys.
//!
//! ```text
//!   file ─▶ Source ─▶ Users ─▶ Access (all threads) ─▶ Standing (a connection's user) ─▶ may it run this?
//!                       ▲ ACL SETUSER, DELUSER, LOAD: another version
//! ```
//!
//! What a user is (`user`) is made of rules as in Redis' ACL files: passwords (`password`), commands (`rights`, by the `catalogue` of these and their
//! `categories`) and patterns of keys (`keys`). All of that is pure, and so is what a list of users is (`users`) and what was refused last (`log`). `source` reads
//! files, `access` is what threads share, `standing` what a connection is.
//!
//! Invariants:
//!
//! * Users are replaced as a whole or not at all; who has heard that they were is served by the new ones at every thread.
//! * Of passwords only SHA-256 is kept, and compared in constant time. Neither a password nor a hash is in an error or a log.
//! * What is unknown is refused: a rule, a command, a subcommand.

mod access;
mod catalogue;
mod categories;
mod keys;
mod log;
mod password;
mod rights;
mod source;
mod standing;
mod user;
mod users;

pub(crate) use access::Access;
#[cfg(test)]
pub(crate) use catalogue::Uses;
pub(crate) use catalogue::{SUBJECTS, Subject};
pub(crate) use categories::Categories;
pub(crate) use log::{Denied, Reason};
pub(crate) use password::digits;
pub use source::UserSource;
pub(crate) use standing::Standing;
pub(crate) use user::{Refusal, User};
pub(crate) use users::{DEFAULT, Users, is_name, shown};
