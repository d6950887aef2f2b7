//! Access control: users, their passwords, and which commands each may run on which keys.
//!
//! ```text
//!   file ─▶ Users ─▶ Login (a connection's user) ─▶ check: may it run this?
//!             ▲ ACL SETUSER, DELUSER, LOAD make a new version
//! ```
//!
//! A user consists of rules, as in Redis' ACL files: passwords (`password`), commands
//! (`command_rights`) and patterns of keys (`key_rights`). `users` has all users, `denial_log` the
//! newest refusals.
//!
//! Invariants:
//!
//! * Users are replaced as a whole or not at all.
//! * Only SHA-256 hashes of passwords are kept, and compared in constant time. No error and no log
//!   contains a password or a hash.
//! * Unknown rules, commands and subcommands are refused.

mod command_rights;
mod denial_log;
mod key_rights;
mod login;
mod password;
mod permission;
mod user;
mod users;

pub use denial_log::{Denial, DenialEntry, DenialLog, DenialReason};
pub use login::Login;
pub use password::{PasswordHash, hex};
pub use permission::check;
pub use user::{Refusal, RuleError, Sha256, User};
pub use users::{DEFAULT, Users};
pub(crate) use users::{is_name, shown_rule};
