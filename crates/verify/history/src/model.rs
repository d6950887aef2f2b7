//! The model of a key: a register with a version. It is written from the documentation of the wire
//! format, independently of the replica's evaluation, so that the two check each other.

mod hashes;

use alloc::string::ToString;
use alloc::vec::Vec;
use hashes::Changed;
use nicekv_proto::limits::LARGE_VALUE_BYTES_MAX;
use nicekv_proto::{ClientId, Condition, Expiry, Form, OpId, Operation, Status};

/// An owned operation. `Expire`, `Persist` and floats are left to the replica's own tests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Get,
    Update {
        /// The op id, which becomes the version (R5).
        op: OpId,
        /// The condition for the change.
        condition: When,
        /// Whether the answer contains the previous value. Answers to applied increments and
        /// appends contain the new value instead.
        return_old: bool,
        change: Change,
    },
}

/// See [`Condition`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum When {
    Always,
    IfAbsent,
    IfPresent,
    IfVersion(OpId),
}

/// See [`Operation`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    Set(Vec<u8>),
    /// A set of a value that expires: the primary may delete it at any later time (R11).
    SetExpiring {
        value: Vec<u8>,
        at_ms: u64,
    },
    Delete,
    /// A delete whose answer does not say whether there was a value.
    Erase,
    Increment(i64),
    Append(Vec<u8>),
    /// Sets fields of a hash; the argument is in the wire encoding.
    SetFields {
        fields: Vec<u8>,
        only_new: bool,
    },
    /// Removes fields of a hash; the argument is their names in the wire encoding.
    RemoveFields(Vec<u8>),
    IncrementField {
        name: Vec<u8>,
        delta: i64,
    },
}

impl When {
    /// The condition in the types of the wire format.
    pub fn condition(self) -> Condition {
        match self {
            Self::Always => Condition::Always,
            Self::IfAbsent => Condition::IfAbsent,
            Self::IfPresent => Condition::IfPresent,
            Self::IfVersion(version) => Condition::IfVersion(version),
        }
    }
}

impl Change {
    /// The change in the types of the wire format.
    pub fn operation(&self) -> Operation<'_> {
        match self {
            Self::Set(value) => Operation::Set { value, expiry: Expiry::Never },
            Self::SetExpiring { value, at_ms } => Operation::Set { value, expiry: Expiry::At(*at_ms) },
            Self::Delete | Self::Erase => Operation::Delete,
            Self::Increment(delta) => Operation::Increment(*delta),
            Self::Append(suffix) => Operation::Append(suffix),
            Self::SetFields { fields, only_new } => Operation::SetFields { fields, only_new: *only_new },
            Self::RemoveFields(names) => Operation::RemoveFields(names),
            Self::IncrementField { name, delta } => Operation::IncrementField { name, delta: *delta },
        }
    }

    /// Whether the new value depends on the previous one. The reply describes the new value.
    pub(crate) fn adds(&self) -> bool {
        matches!(self, Self::Increment(_) | Self::Append(_)) || self.is_of_fields()
    }
}

/// An answer to a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    pub status: Status,
    /// The key's version; [`Self::VERSION_NOT_TOLD`] if the answer has none.
    pub version: OpId,
    /// The sum of an increment, or the length after an append.
    pub integer: i64,
    /// The value that was read, or the previous value of an update.
    pub value: Option<Vec<u8>>,
    /// The form of the value.
    pub form: Form,
}

impl Answer {
    /// Whether the answer says that the op was not executed, for a reason other than the state of
    /// the key.
    pub fn is_refusal(&self) -> bool {
        matches!(self.status, Status::Busy | Status::DiskFull | Status::StaleStamp | Status::EndedByStore)
    }

    /// The answer to a script with this reply.
    pub fn of_script(reply: Vec<u8>) -> Self {
        Self {
            status: Status::Ok,
            version: Self::VERSION_NOT_TOLD,
            integer: 0,
            value: Some(reply),
            form: Form::Plain,
        }
    }

    /// Stands for the version in an answer without one, as Redis clients get. It matches any
    /// version.
    pub const VERSION_NOT_TOLD: OpId = OpId { client: ClientId(u64::MAX), sequence: u64::MAX };

    /// Whether the answer contains the version of an existing key.
    pub(crate) fn tells_version(&self) -> bool {
        let is_of_key = matches!(self.status, Status::Ok | Status::NotFound | Status::ConditionFailed);
        is_of_key && self.version != OpId::NONE && self.version != Self::VERSION_NOT_TOLD
    }

    /// Whether the answer equals the expected one. Of errors only the status is compared, since the
    /// client library drops the details.
    pub(crate) fn agrees_with(&self, expected: &Self) -> bool {
        match self.status {
            Status::Ok | Status::NotFound | Status::ConditionFailed => {
                let Self { status, version, integer, value, form } = self;
                (*version == expected.version || *version == Self::VERSION_NOT_TOLD)
                    && (*status, *integer, value, *form)
                        == (expected.status, expected.integer, &expected.value, expected.form)
            }
            error => error == expected.status,
        }
    }
}

/// The state of the key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Register {
    present: Option<Present>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Present {
    version: OpId,
    value: Vec<u8>,
    form: Form,
    expires: bool,
}

impl Register {
    pub(crate) fn is_present(&self) -> bool {
        self.present.is_some()
    }

    /// The state after the value has expired; `None` if it cannot expire.
    pub(crate) fn expired(&self) -> Option<Self> {
        self.present.as_ref().filter(|present| present.expires)?;
        Some(Self::default())
    }

    /// The state after `action`; `None` if the answer would differ from `given`, or without `given`
    /// if the action changes nothing.
    pub(crate) fn after(&self, action: &Action, given: Option<&Answer>) -> Option<Self> {
        let (next, answer) = self.execute(action);
        let fits = given.map_or_else(|| next != *self, |given| given.agrees_with(&answer));
        fits.then_some(next)
    }

    /// Whether `action`, whose answer says that it changed nothing, would get the answer `given`
    /// here.
    pub(crate) fn shows(&self, action: &Action, given: &Answer) -> bool {
        match (action, &self.present) {
            // Most calls are gets of another version: this avoids copying the value to find that
            // out.
            (Action::Get, Some(present)) if given.tells_version() && given.version != present.version => {
                false
            }
            _ => given.agrees_with(&self.execute(action).1),
        }
    }

    /// Executes `action`. Returns the next state and the answer.
    pub(crate) fn execute(&self, action: &Action) -> (Self, Answer) {
        match action {
            Action::Get => (self.clone(), self.read()),
            Action::Update { op, condition, return_old, change } => {
                if self.is_wrong_type(change, *return_old) {
                    return (self.clone(), self.unchanged(Status::WrongType));
                }
                let (next, mut answer) = match self.meets(*condition) {
                    true => self.change(*op, change),
                    false => (self.clone(), self.unchanged(Status::ConditionFailed)),
                };
                if *return_old && !(change.adds() && answer.status == Status::Ok) {
                    answer.value = self.present.as_ref().map(|present| present.value.clone());
                    answer.form = self.form();
                }
                (next, answer)
            }
        }
    }

    /// Whether increments and appends could turn this state into the one before another op. A value
    /// that is not a number only gets longer, at its end; so does a number, unless it may `shrink`.
    pub(crate) fn may_become(&self, before: &Before, shrink: bool) -> bool {
        let bytes_max = match before {
            Before::Untold => return false,
            Before::Any => return true,
            Before::UpTo(bytes) => *bytes,
            Before::Exactly(whole) => whole.len(),
        };
        let Some(Present { value, form, .. }) = &self.present else { return true };
        // Fields may be added and removed.
        if *form == Form::Hash {
            return true;
        }
        if number(value).is_some() {
            return value.len() <= bytes_max || shrink || value.starts_with(b"-");
        }
        match before {
            Before::Exactly(whole) => whole.starts_with(value),
            _ => value.len() <= bytes_max,
        }
    }

    /// Overwrites the value with `filler` if it cannot matter: it is not a number, and no answer
    /// contains it or a longer value that begins with it. `told` has all values in answers,
    /// ascending.
    pub(crate) fn forget_untold(&mut self, told: &[&[u8]], filler: u8) {
        if let Some(Present { value, form: Form::Plain, .. }) = &mut self.present
            && !may_be_told(value, told)
        {
            value.fill(filler);
        }
    }

    /// Whether the register holds another value than `told` under this version.
    pub(crate) fn contradicts(&self, version: OpId, told: &[u8]) -> bool {
        self.present.as_ref().is_some_and(|present| present.version == version && present.value != told)
    }

    pub(crate) fn version(&self) -> OpId {
        self.present.as_ref().map_or(OpId::NONE, |present| present.version)
    }

    pub(crate) fn form(&self) -> Form {
        self.present.as_ref().map_or(Form::Plain, |present| present.form)
    }

    /// Whether the change does not apply to this form of value, which is checked before any
    /// condition. The previous value of a hash cannot be returned either.
    fn is_wrong_type(&self, change: &Change, return_old: bool) -> bool {
        let is_hash = self.form() == Form::Hash;
        match change.adds() {
            true => self.is_present() && change.is_of_fields() != is_hash,
            false => is_hash && return_old,
        }
    }

    fn unchanged(&self, status: Status) -> Answer {
        Answer { status, version: self.version(), integer: 0, value: None, form: Form::Plain }
    }

    fn read(&self) -> Answer {
        match &self.present {
            None => self.unchanged(Status::NotFound),
            Some(Present { value, form, .. }) => {
                Answer { value: Some(value.clone()), form: *form, ..self.unchanged(Status::Ok) }
            }
        }
    }

    pub(crate) fn meets(&self, condition: When) -> bool {
        match condition {
            When::Always => true,
            When::IfAbsent => self.present.is_none(),
            When::IfPresent => self.present.is_some(),
            When::IfVersion(version) => self.version() == version,
        }
    }

    fn change(&self, op: OpId, change: &Change) -> (Self, Answer) {
        let before: &[u8] = self.present.as_ref().map_or(&[], |present| &present.value);
        let keeps = self.present.as_ref().is_some_and(|present| present.expires);
        let is_hash = self.form() == Form::Hash;
        let mut form = Form::Plain;
        let (value, expires, integer) = match change {
            Change::Set(value) => (value.clone(), false, 0),
            Change::SetExpiring { value, .. } => (value.clone(), true, 0),
            Change::Delete => {
                let status = if self.present.is_some() { Status::Ok } else { Status::NotFound };
                return (Self::default(), Answer { version: OpId::NONE, ..self.unchanged(status) });
            }
            Change::Erase => {
                return (Self::default(), Answer { version: OpId::NONE, ..self.unchanged(Status::Ok) });
            }
            Change::Increment(delta) => {
                let number = if self.present.is_none() { Some(0) } else { number(before) };
                let Some(number) = number else {
                    return (self.clone(), self.unchanged(Status::NotAnInteger));
                };
                let Some(sum) = number.checked_add(*delta) else {
                    return (self.clone(), self.unchanged(Status::Overflow));
                };
                (sum.to_string().into_bytes(), keeps, sum)
            }
            Change::Append(suffix) => {
                let value = [before, suffix].concat();
                if value.len() > LARGE_VALUE_BYTES_MAX as usize {
                    return (self.clone(), self.unchanged(Status::ValueTooLong));
                }
                let length = value.len() as i64;
                (value, keeps, length)
            }
            Change::SetFields { .. } | Change::RemoveFields(_) | Change::IncrementField { .. } => {
                form = Form::Hash;
                match change.of_fields(is_hash.then_some(before)) {
                    Changed::Not(status) => return (self.clone(), self.unchanged(status)),
                    Changed::To(value, told) if value.is_empty() => {
                        let gone =
                            Answer { version: OpId::NONE, integer: told, ..self.unchanged(Status::Ok) };
                        return (Self::default(), gone);
                    }
                    Changed::To(value, told) => (value, keeps, told),
                }
            }
        };
        let next = Self { present: Some(Present { version: op, value, form, expires }) };
        (next, Answer { status: Status::Ok, version: op, integer, value: None, form: Form::Plain })
    }
}

/// Knowledge about the value before an op, from its own answer or from later ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// It was absent, or does not matter, or its version is in an answer.
    Untold,
    /// It may have been any hash.
    Any,
    /// It had at most this length.
    UpTo(usize),
    /// It was this value, or absent if ops on an absent key get the same answer.
    Exactly(Vec<u8>),
}

impl Change {
    /// Overwrites the bytes of a set or append that no answer can reveal: see
    /// [`Register::forget_untold`].
    pub(crate) fn forget_untold(&mut self, told: &[&[u8]], filler: u8) {
        match self {
            Self::Set(value) | Self::SetExpiring { value, .. } if !may_be_told(value, told) => {
                value.fill(filler);
            }
            Self::Append(suffix) if !may_be_in_told(suffix, told) => suffix.fill(filler),
            _ => {}
        }
    }
}

/// Whether an answer contains this value or a longer one that begins with it, or increments may
/// turn it into such a value.
fn may_be_told(value: &[u8], told: &[&[u8]]) -> bool {
    let place = told.partition_point(|whole| *whole < value);
    told.get(place).is_some_and(|whole| whole.starts_with(value)) || number(value).is_some()
}

/// Whether a value that ends with this suffix may be in an answer, may be the beginning of a value
/// in an answer, or may be a number.
fn may_be_in_told(suffix: &[u8], told: &[&[u8]]) -> bool {
    let may_be_number = suffix.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-');
    may_be_number || told.iter().any(|whole| whole.windows(suffix.len()).any(|part| part == suffix))
}

/// Parses a 64-bit integer in its canonical form.
pub(crate) fn number(bytes: &[u8]) -> Option<i64> {
    let number: i64 = core::str::from_utf8(bytes).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == bytes).then_some(number)
}
