//! The user of a connection.
//!
//! ```text
//!   begins ─▶ default user, if it has no password ─────┐
//!     └─────▶ nobody ─▶ AUTH, HELLO AUTH ─▶ user ──────┼─▶ users have changed: still on, and its password valid ─▶ stays
//!                          wrong: delayed              └─▶ else the connection is closed
//! ```

use super::password::PasswordHash;
use super::user::User;
use super::users::{DEFAULT, Users};
use alloc::sync::Arc;

#[derive(Debug, Default)]
pub struct Login {
    user: Option<Arc<User>>,
    /// The password of the login; `None`: the user needed none.
    password: Option<PasswordHash>,
    /// Version of the users at the last check; 0 for a new connection.
    version: u64,
    /// A login has failed, and the delay for it has not begun yet.
    pub has_failed: bool,
}

impl Login {
    /// `None`: the client has not authenticated, and has to.
    pub fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    pub fn name(&self) -> &[u8] {
        self.user.as_ref().map_or(DEFAULT, |user| &user.name)
    }

    /// Whether the last check was against this version of the users.
    pub fn is_current(&self, version: u64) -> bool {
        self.version == version
    }

    /// Applies a change of the users. Returns false if the connection's user may not stay logged
    /// in.
    pub fn follow(&mut self, users: &Users, version: u64) -> bool {
        let is_new = core::mem::replace(&mut self.version, version) == 0;
        if is_new {
            self.begin(users);
            return true;
        }
        let Some(before) = self.user.take() else { return true };
        self.user = users.get(&before.name).filter(|user| self.may_stay(user)).cloned();
        self.user.is_some()
    }

    /// The same for the connection that changed the users: it stays logged in as long as its user
    /// exists.
    pub fn follow_own_change(&mut self, users: &Users, version: u64) {
        let Some(user) = self.user.as_ref().and_then(|before| users.get(&before.name)) else { return };
        (self.user, self.version) = (Some(user.clone()), version);
    }

    fn may_stay(&self, user: &User) -> bool {
        let is_valid = self.password.as_ref().is_some_and(|password| user.has_password(password));
        user.is_on() && (user.has_no_password() || is_valid)
    }

    fn begin(&mut self, users: &Users) {
        let default = users.default_user();
        (self.user, self.password) = (default.is_open().then(|| default.clone()), None);
    }

    /// RESET: back to the user with which a new connection begins.
    pub fn reset(&mut self, users: &Users, version: u64) {
        self.version = version;
        self.begin(users);
    }

    /// Logs in. Returns false and changes nothing if the password is wrong.
    pub fn log_in(&mut self, users: &Users, version: u64, name: &[u8], password: PasswordHash) -> bool {
        let found = users.log_in(name, &password);
        self.has_failed |= found.is_none();
        let Some(user) = found else { return false };
        *self = Self { user: Some(user), password: Some(password), version, has_failed: self.has_failed };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sha256(bytes: &[u8]) -> [u8; 32] {
        ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().try_into().unwrap()
    }

    fn users(text: &str) -> Users {
        Users::parse(text.as_bytes(), "f", &sha256).unwrap()
    }

    fn log_in(login: &mut Login, users: &Users, name: &str, password: &str) -> bool {
        login.log_in(users, 1, name.as_bytes(), PasswordHash::new(sha256(password.as_bytes())))
    }

    fn after(credentials: Option<(&str, &str)>, before: &str, change: &str) -> (bool, Vec<u8>) {
        let before = users(before);
        let mut login = Login::default();
        assert!(login.follow(&before, 1) && login.is_current(1));
        if let Some((name, password)) = credentials {
            assert!(log_in(&mut login, &before, name, password));
        }
        assert!(!login.is_current(2));
        let stays = login.follow(&users(change), 2);
        (stays, login.user().map(|user| user.commands().into_bytes()).unwrap_or_default())
    }

    #[test]
    fn connections_follow_changes_of_their_user() {
        let alice = Some(("alice", "one"));
        let before = "user default off\nuser alice on >one +get";
        assert_eq!(after(alice, before, "user alice on >one +set"), (true, b"-@all +set".to_vec()));
        assert_eq!(after(alice, before, "user alice on >two >one"), (true, b"-@all".to_vec()));
        assert_eq!(after(alice, before, "user alice on nopass"), (true, b"-@all".to_vec()));
        for change in ["user alice off >one", "user alice on >two", "user bob on >one"] {
            assert_eq!(after(alice, before, change), (false, vec![]), "{change}");
        }
        assert_eq!(
            after(None, "", "user default on >one"),
            (false, vec![]),
            "the default user needs a password now"
        );
        assert_eq!(
            after(None, before, "user default on nopass"),
            (true, vec![]),
            "a connection without a user stays without one"
        );
    }

    #[test]
    fn the_connection_that_changes_users_stays() {
        let mut login = Login::default();
        login.follow(&users(""), 1);
        login.follow_own_change(&users("user default on >one +@all"), 2);
        assert!(login.is_current(2) && login.user().is_some());
        assert!(!login.follow(&users("user default on >two +@all"), 3));
    }

    #[test]
    fn a_wrong_password_changes_nothing_but_is_remembered() {
        let all = users("user default on nopass +get\nuser alice on >one");
        let mut login = Login::default();
        login.follow(&all, 1);
        assert!(!log_in(&mut login, &all, "alice", "two") && login.has_failed);
        assert_eq!(login.name(), DEFAULT);
        assert!(log_in(&mut login, &all, "alice", "one") && login.name() == b"alice");
        login.reset(&all, 1);
        assert_eq!(login.name(), DEFAULT);
        login.reset(&users("user default off"), 2);
        assert!(login.user().is_none());
    }
}
