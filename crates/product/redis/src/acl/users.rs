//! A version of all users.

use super::password::PasswordHash;
use super::user::{Sha256, User, has_blanks};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;

/// Name of the user that a connection has before it logs in.
pub const DEFAULT: &[u8] = b"default";
/// Maximum number of users.
const USERS_MAX: usize = 10_000;
/// Maximum bytes of a rule or name that an error quotes.
const QUOTED_BYTES_MAX: usize = 64;
/// Maximum problems of a file that an error reports.
const PROBLEMS_MAX: usize = 8;

/// Users by name. The default user always exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Users(BTreeMap<Vec<u8>, Arc<User>>);

impl Default for Users {
    /// Only the default user, without a password.
    fn default() -> Self {
        Self::of(User::open(DEFAULT))
    }
}

impl Users {
    fn of(default: User) -> Self {
        Self(BTreeMap::from([(DEFAULT.to_vec(), Arc::new(default))]))
    }

    /// Only the default user, with this password and all permissions.
    pub fn with_password(password: &[u8], sha256: Sha256<'_>) -> Self {
        let mut user = User::open(DEFAULT);
        user.apply(&[b">", password].concat(), sha256).expect("any password is valid");
        Self::of(user)
    }

    /// Parses a file with lines `user NAME rules…`. The error names the file and the lines, and
    /// contains no password.
    pub fn parse(text: &[u8], file: &str, sha256: Sha256<'_>) -> Result<Self, String> {
        let (mut users, mut problems) = (BTreeMap::new(), Vec::new());
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            match parse_line(line, sha256) {
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
        let mut text = String::new();
        for (line, problem) in problems {
            write!(text, "{file}:{line}{problem}. ").expect("writing to a string cannot fail");
        }
        text.pop();
        Err(text)
    }

    pub fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.0.get(name)
    }

    pub fn default_user(&self) -> &Arc<User> {
        self.0.get(DEFAULT).expect("there is always a default user")
    }

    /// All users, sorted by name.
    pub fn all(&self) -> impl ExactSizeIterator<Item = &User> {
        self.0.values().map(Arc::as_ref)
    }

    /// The user whose name and password these are. If there is no such user, it takes as long.
    pub fn log_in(&self, name: &[u8], hashed: &PasswordHash) -> Option<Arc<User>> {
        let user = self.get(name);
        let is_right = user.unwrap_or(self.default_user()).has_password(hashed);
        let user = user.filter(|user| user.is_on())?;
        (is_right || user.has_no_password()).then(|| user.clone())
    }

    /// A copy with this user added or replaced; `None` if there are too many users.
    pub fn with(&self, user: User) -> Option<Self> {
        let mut users = self.0.clone();
        if !users.contains_key(&user.name) && users.len() == USERS_MAX {
            return None;
        }
        users.insert(user.name.clone(), Arc::new(user));
        Some(Self(users))
    }

    /// A copy without these users, and how many of them existed.
    pub fn without<'a>(&self, names: impl Iterator<Item = &'a [u8]>) -> (Self, usize) {
        let mut users = self.0.clone();
        let count = names.filter(|name| *name != DEFAULT && users.remove(*name).is_some()).count();
        (Self(users), count)
    }
}

/// The user that a line describes; `None` if the line is empty.
fn parse_line(line: &[u8], sha256: Sha256<'_>) -> Result<Option<User>, String> {
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
        user.apply(rule, sha256)
            .map_err(|error| format!(": Error in applying operation '{}': {error}", shown_rule(rule)))?;
    }
    Ok(Some(user))
}

/// Whether this is a valid name.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= 128 && !has_blanks(name)
}

fn quoted(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(QUOTED_BYTES_MAX)]).into_owned()
}

/// A rule as errors quote it: without anything that could be a password.
pub(crate) fn shown_rule(rule: &[u8]) -> String {
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

    fn sha256(bytes: &[u8]) -> [u8; 32] {
        ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().try_into().unwrap()
    }

    fn hash(password: &[u8]) -> PasswordHash {
        PasswordHash::new(sha256(password))
    }

    const FILE: &[u8] = b"user default off\n\nuser alice on >secret ~* +@all\r\n  user bob on nopass +get\nuser carol off nopass";

    fn names(users: &Users) -> Vec<String> {
        users.all().map(|user| String::from_utf8(user.name.clone()).unwrap()).collect()
    }

    #[test]
    fn a_file_has_one_user_per_line() {
        let users = Users::parse(FILE, "f", &sha256).unwrap();
        assert_eq!(names(&users), ["alice", "bob", "carol", "default"]);
        assert!(!users.default_user().is_open());
        let logged_in =
            |name: &str, password: &str| users.log_in(name.as_bytes(), &hash(password.as_bytes())).is_some();
        assert!(logged_in("alice", "secret") && logged_in("bob", "anything"));
        for (name, password) in
            [("alice", "Secret"), ("alice", ""), ("carol", "x"), ("default", ""), ("nobody", "secret")]
        {
            assert!(!logged_in(name, password), "{name} {password}");
        }
        assert!(Users::parse(b"", "f", &sha256).unwrap().default_user().is_open(), "as in Redis");
    }

    #[test]
    fn errors_name_the_line_and_no_password() {
        let text = b"user default on nopass\nusr foo\n\nuser bad >hunter2 +nope\nuser alice on\nuser alice off\nuser x #hunter2\nuser y hunter2\nuser";
        let report = Users::parse(text, "users.acl", &sha256).unwrap_err();
        for part in [
            "users.acl:2 should start with user keyword followed by the username. ",
            "users.acl:4: Error in applying operation '+nope': Unknown command or category name in ACL. ",
            "users.acl:6: duplicate user 'alice'. ",
            "users.acl:7: Error in applying operation '#…': The password hash",
            "users.acl:8: Error in applying operation '…': Syntax error. ",
            "users.acl:9 should start",
        ] {
            assert!(report.contains(part), "{part}: {report}");
        }
        assert!(!report.contains("hunter2"), "{report}");
        assert!(Users::parse(b"user a\0b on", "f", &sha256).unwrap_err().contains("f:1: username"));
    }

    #[test]
    fn a_password_file_sets_the_default_user() {
        let users = Users::with_password(b"p w", &sha256);
        assert!(!users.default_user().is_open() && users.default_user().may_do_everything());
        assert!(users.log_in(DEFAULT, &hash(b"p w")).is_some());
        assert!(users.log_in(DEFAULT, &hash(b"p")).is_none());
    }

    #[test]
    fn the_default_user_cannot_be_removed() {
        let users = Users::default().with(User::new(b"alice")).unwrap();
        let (left, count) = users.without([b"alice".as_slice(), DEFAULT, b"nobody"].into_iter());
        assert_eq!((names(&left), count), (vec!["default".into()], 1));
        assert_eq!(names(&users), ["alice", "default"]);
    }
}
