//! The users of a gateway, all of them, at one moment.

use super::password::Hashed;
use super::user::{User, has_blanks};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// The user that every connection begins as.
pub(crate) const DEFAULT: &[u8] = b"default";
/// Users of one gateway.
const USERS_MAX: usize = 10_000;
/// What an error quotes of a rule or a name.
const QUOTED_BYTES_MAX: usize = 64;
/// Problems of a file that are told.
const PROBLEMS_MAX: usize = 8;

/// See the module. There is always a default one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Users(BTreeMap<Vec<u8>, Arc<User>>);

impl Default for Users {
    /// Nobody needs a password.
    fn default() -> Self {
        Self::of(User::open(DEFAULT))
    }
}

impl Users {
    fn of(default: User) -> Self {
        Self(BTreeMap::from([(DEFAULT.to_vec(), Arc::new(default))]))
    }

    /// One user, who may do everything with this password.
    pub(crate) fn with_password(password: &[u8]) -> Self {
        let mut user = User::open(DEFAULT);
        user.apply(&[b">", password].concat()).expect("it is a password");
        Self::of(user)
    }

    /// From a file, as lines of `user NAME rules…`; `name` is the file's. The error has the lines that are wrong, and no password.
    pub(crate) fn parse(text: &[u8], name: &str) -> Result<Self, String> {
        let (mut users, mut problems) = (BTreeMap::new(), Vec::new());
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            match parse_line(line) {
                Ok(None) => (),
                Ok(Some(user)) if users.contains_key(&user.name) => {
                    problems.push((index + 1, format!(": duplicate user '{}'", quoted(&user.name))));
                }
                Ok(Some(_)) if users.len() == USERS_MAX => {
                    problems.push((index + 1, format!(": more than {USERS_MAX} users")));
                }
                Ok(Some(user)) => drop(users.insert(user.name.clone(), Arc::new(user))),
                Err(problem) => problems.push((index + 1, problem)),
            }
            if problems.len() == PROBLEMS_MAX {
                break;
            }
        }
        if problems.is_empty() {
            users.entry(DEFAULT.to_vec()).or_insert_with(|| Arc::new(User::open(DEFAULT)));
            return Ok(Self(users));
        }
        let mut told = String::new();
        for (line, problem) in problems {
            write!(told, "{name}:{line}{problem}. ").expect("a string takes everything");
        }
        told.pop();
        Err(told)
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.0.get(name)
    }

    pub(crate) fn default_user(&self) -> &Arc<User> {
        self.0.get(DEFAULT).expect("there is always one")
    }

    /// By name.
    pub(crate) fn all(&self) -> impl ExactSizeIterator<Item = &User> {
        self.0.values().map(Arc::as_ref)
    }

    /// The user that may log in by this password. Whether there is none, or the password is wrong, takes as long.
    pub(crate) fn log_in(&self, name: &[u8], hashed: &Hashed) -> Option<Arc<User>> {
        let user = self.get(name);
        let is_right = user.unwrap_or(self.default_user()).has_password(hashed);
        let user = user.filter(|user| user.is_on())?;
        (is_right || user.has_no_password()).then(|| user.clone())
    }

    /// With this user, or with it changed.
    pub(crate) fn with(&self, user: User) -> Option<Self> {
        let mut users = self.0.clone();
        if !users.contains_key(&user.name) && users.len() == USERS_MAX {
            return None;
        }
        users.insert(user.name.clone(), Arc::new(user));
        Some(Self(users))
    }

    /// Without these, and how many of them there were.
    pub(crate) fn without<'a>(&self, names: impl Iterator<Item = &'a [u8]>) -> (Self, usize) {
        let mut users = self.0.clone();
        let count = names.filter(|name| *name != DEFAULT && users.remove(*name).is_some()).count();
        (Self(users), count)
    }
}

/// A user, unless the line is empty.
fn parse_line(line: &[u8]) -> Result<Option<User>, String> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let name = match (words.next(), words.next()) {
        (None, _) => return Ok(None),
        (Some(b"user"), Some(name)) => name,
        _ => return Err(" should start with user keyword followed by the username".into()),
    };
    if !is_name(name) {
        return Err(": username contains invalid characters".into());
    }
    let mut user = User::new(name);
    for rule in words {
        user.apply(rule)
            .map_err(|error| format!(": Error in applying operation '{}': {error}", shown(rule)))?;
    }
    Ok(Some(user))
}

/// Whether a user may have this name.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= 128 && !has_blanks(name)
}

fn quoted(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(QUOTED_BYTES_MAX)]).into_owned()
}

/// A rule as errors may show it. What could be a password, or meant to be one, is not shown.
pub(crate) fn shown(rule: &[u8]) -> String {
    match rule.first() {
        Some(sign @ (b'>' | b'<' | b'#' | b'!')) => format!("{}…", char::from(*sign)),
        Some(b'~' | b'%' | b'&' | b'+' | b'-' | b'(') => quoted(rule),
        _ if rule.len() <= 24 && rule.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'-') => {
            quoted(rule)
        }
        _ => "…".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = b"user default off\n\nuser alice on >secret ~* +@all\r\n  user bob on nopass +get\nuser carol off nopass";

    fn names(users: &Users) -> Vec<String> {
        users.all().map(|user| String::from_utf8(user.name.clone()).unwrap()).collect()
    }

    #[test]
    fn a_file_is_a_user_a_line() {
        let users = Users::parse(FILE, "f").unwrap();
        assert_eq!(names(&users), ["alice", "bob", "carol", "default"]);
        assert!(!users.default_user().is_open());
        let logged_in = |name: &str, password: &str| {
            users.log_in(name.as_bytes(), &Hashed::of(password.as_bytes())).is_some()
        };
        assert!(logged_in("alice", "secret") && logged_in("bob", "anything"));
        for (name, password) in
            [("alice", "Secret"), ("alice", ""), ("carol", "x"), ("default", ""), ("nobody", "secret")]
        {
            assert!(!logged_in(name, password), "{name} {password}");
        }
        assert!(Users::parse(b"", "f").unwrap().default_user().is_open(), "as in Redis");
    }

    #[test]
    fn what_is_wrong_is_told_by_its_line_and_tells_no_password() {
        let text = b"user default on nopass\nusr foo\n\nuser bad >hunter2 +nope\nuser alice on\nuser alice off\nuser x #hunter2\nuser y hunter2\nuser";
        let told = Users::parse(text, "users.acl").unwrap_err();
        for part in [
            "users.acl:2 should start with user keyword followed by the username. ",
            "users.acl:4: Error in applying operation '+nope': Unknown command or category name in ACL. ",
            "users.acl:6: duplicate user 'alice'. ",
            "users.acl:7: Error in applying operation '#…': The password hash",
            "users.acl:8: Error in applying operation '…': Syntax error. ",
            "users.acl:9 should start",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(!told.contains("hunter2"), "{told}");
        assert!(Users::parse(b"user a\0b on", "f").unwrap_err().contains("f:1: username"));
    }

    #[test]
    fn a_password_alone_is_the_default_users() {
        let users = Users::with_password(b"p w");
        assert!(!users.default_user().is_open() && users.default_user().may_everything());
        assert!(users.log_in(DEFAULT, &Hashed::of(b"p w")).is_some());
        assert!(users.log_in(DEFAULT, &Hashed::of(b"p")).is_none());
    }

    #[test]
    fn users_come_and_go_but_the_default_one_stays() {
        let users = Users::default().with(User::new(b"alice")).unwrap();
        let (left, count) = users.without([b"alice".as_slice(), DEFAULT, b"nobody"].into_iter());
        assert_eq!((names(&left), count), (vec!["default".into()], 1));
        assert_eq!(names(&users), ["alice", "default"]);
    }
}
