//! Who a connection is.
//!
//! ```text
//!   begins ─▶ default user, if that has no password ──┐
//!     └─────▶ nobody ─▶ AUTH, HELLO AUTH ─▶ user ─────┼─▶ users have changed: still on, and logged in as one may be ─▶ goes on
//!                          wrong: rests               └─▶ else it ends
//! ```

use super::access::Access;
use super::password::Hashed;
use super::user::User;
use super::users::{DEFAULT, Users};
use std::sync::Arc;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    user: Option<Arc<User>>,
    /// What it has logged in with; `None`: it needed no password.
    password: Option<Hashed>,
    /// Of the users that it goes by; 0: it has just begun.
    version: u64,
    /// A login has failed, and the connection has not rested yet.
    pub(crate) has_failed: bool,
}

impl Standing {
    /// Who it is; `None`: nobody that is known.
    pub(crate) fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    pub(crate) fn name(&self) -> &[u8] {
        self.user.as_ref().map_or(DEFAULT, |user| &user.name)
    }

    /// Whether the users have not changed since it looked.
    pub(crate) fn is_current(&self, access: &Access) -> bool {
        self.version == access.version()
    }

    /// Goes by the users as they are now; false if its own may not be there any more.
    pub(crate) fn follow(&mut self, access: &Access) -> bool {
        let (users, version) = access.users();
        let is_new = std::mem::replace(&mut self.version, version) == 0;
        if is_new {
            self.begin(&users);
            return true;
        }
        let Some(before) = self.user.take() else { return true };
        self.user = users.get(&before.name).filter(|user| self.may_stay(user)).cloned();
        self.user.is_some()
    }

    /// The same for the connection that has changed the users: it stays as long as there is its user.
    pub(crate) fn follow_own_change(&mut self, access: &Access) {
        let (users, version) = access.users();
        let Some(user) = self.user.as_ref().and_then(|before| users.get(&before.name)) else { return };
        (self.user, self.version) = (Some(user.clone()), version);
    }

    fn may_stay(&self, user: &User) -> bool {
        let is_right = self.password.as_ref().is_some_and(|password| user.has_password(password));
        user.is_on() && (user.has_no_password() || is_right)
    }

    fn begin(&mut self, users: &Users) {
        let default = users.default_user();
        (self.user, self.password) = (default.is_open().then(|| default.clone()), None);
    }

    /// RESET: who it was when it began.
    pub(crate) fn reset(&mut self, access: &Access) {
        let (users, version) = access.users();
        self.version = version;
        self.begin(&users);
    }

    /// Logs in; whether it did. Who fails stays who it was.
    pub(crate) fn log_in(&mut self, access: &Access, name: &[u8], password: &[u8]) -> bool {
        let hashed = Hashed::of(password);
        let (users, version) = access.users();
        let found = users.log_in(name, &hashed);
        self.has_failed |= found.is_none();
        let Some(user) = found else { return false };
        *self = Self { user: Some(user), password: Some(hashed), version, has_failed: self.has_failed };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn set(access: &Access, text: &str) {
        let users = Users::parse(text.as_bytes(), "f").unwrap();
        access.change(|_| Ok::<_, Infallible>((users, ()))).unwrap();
    }

    fn after(login: Option<(&str, &str)>, before: &str, change: &str) -> (bool, Vec<u8>) {
        let access = Access::default();
        set(&access, before);
        let mut standing = Standing::default();
        assert!(standing.follow(&access) && standing.is_current(&access));
        if let Some((name, password)) = login {
            assert!(standing.log_in(&access, name.as_bytes(), password.as_bytes()));
        }
        set(&access, change);
        assert!(!standing.is_current(&access));
        (
            standing.follow(&access),
            standing.user().map(|user| user.commands().into_bytes()).unwrap_or_default(),
        )
    }

    #[test]
    fn users_that_change_change_their_connections() {
        let alice = Some(("alice", "one"));
        let before = "user default off\nuser alice on >one +get";
        assert_eq!(after(alice, before, "user alice on >one +set"), (true, b"-@all +set".to_vec()));
        assert_eq!(after(alice, before, "user alice on >two >one"), (true, b"-@all".to_vec()));
        assert_eq!(after(alice, before, "user alice on nopass"), (true, b"-@all".to_vec()));
        for change in ["user alice off >one", "user alice on >two", "user bob on >one"] {
            assert_eq!(after(alice, before, change), (false, vec![]), "{change}");
        }
        assert_eq!(after(None, "", "user default on >one"), (false, vec![]), "it was open, and is not");
        assert_eq!(after(None, before, "user default on nopass"), (true, vec![]), "who is nobody stays so");
    }

    #[test]
    fn who_makes_the_change_stays() {
        let access = Access::default();
        let mut standing = Standing::default();
        standing.follow(&access);
        set(&access, "user default on >one +@all");
        standing.follow_own_change(&access);
        assert!(standing.is_current(&access) && standing.user().is_some());
        set(&access, "user default on >two +@all");
        assert!(!standing.follow(&access));
    }

    #[test]
    fn a_wrong_password_leaves_one_who_it_is_and_is_remembered() {
        let access = Access::default();
        set(&access, "user default on nopass +get\nuser alice on >one");
        let mut standing = Standing::default();
        standing.follow(&access);
        assert!(!standing.log_in(&access, b"alice", b"two") && standing.has_failed);
        assert_eq!(standing.name(), DEFAULT);
        assert!(standing.log_in(&access, b"alice", b"one") && standing.name() == b"alice");
        standing.reset(&access);
        assert_eq!(standing.name(), DEFAULT);
        set(&access, "user default off");
        standing.reset(&access);
        assert!(standing.user().is_none());
    }
}
