//! A retained update: the received datagram, decoded once.
//!
//! It is a single allocation: users of its key share it ([`StoredKey`]), and later updates reuse it
//! when no one does ([`StoredBytes`]).

use crate::transaction::Step;
use crate::{Operation, Update, stamp_reply_to};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::hash::{Hash, Hasher};
use core::net::SocketAddrV4;
use core::ops::Deref;
use smallvec::SmallVec;

/// An update with its datagram. Fixed fields are kept decoded; key and value stay in the datagram.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredUpdate {
    datagram: Arc<Vec<u8>>,
    /// The operation without its bytes.
    head: Update<'static>,
    key: Place,
    value: Place,
}

/// Reusable memory of a [`StoredUpdate`].
#[derive(Clone, Debug, Default)]
pub struct StoredBytes(Arc<Vec<u8>>);

/// A range of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Place {
    start: u16,
    length: u16,
}

impl Place {
    #[inline]
    fn of(self, datagram: &[u8]) -> &[u8] {
        &datagram[usize::from(self.start)..][..usize::from(self.length)]
    }
}

/// The key of a [`StoredUpdate`], shared; compared and hashed by its bytes.
#[derive(Clone, Debug)]
pub struct StoredKey {
    datagram: Arc<Vec<u8>>,
    key: Place,
}

impl Deref for StoredKey {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.key.of(&self.datagram)
    }
}

impl Borrow<[u8]> for StoredKey {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for StoredKey {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for StoredKey {}

impl Hash for StoredKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

/// Iterator over the keys of an op.
pub type Keys = SmallVec<[StoredKey; 1]>;

impl StoredUpdate {
    /// Stores an update with the datagram from which it was decoded. Its reply address is `from`
    /// unless the update names one; the address is also written into the datagram. Reuses `spare`
    /// unless it is still shared.
    pub fn new(
        update: &Update<'_>,
        datagram: &[u8],
        from: Option<SocketAddrV4>,
        StoredBytes(mut spare): StoredBytes,
    ) -> Self {
        let value = update.operation.value();
        let Update { keyspace, op, digest, reply_to, watermark, condition, return_old, operation, key } =
            *update;
        let operation = operation.with_value(&[]);
        if Arc::get_mut(&mut spare).is_none() {
            spare = Arc::default();
        }
        if let Some(bytes) = Arc::get_mut(&mut spare) {
            bytes.clear();
            bytes.extend_from_slice(datagram);
            if let (None, Some(from)) = (reply_to, from) {
                stamp_reply_to(bytes, from);
            }
        }
        Self {
            head: Update {
                keyspace,
                op,
                digest,
                reply_to: reply_to.or(from),
                watermark,
                condition,
                return_old,
                operation,
                key: &[],
            },
            key: place(key, datagram),
            value: place(value, datagram),
            datagram: spare,
        }
    }

    /// The update.
    pub fn update(&self) -> Update<'_> {
        Update { operation: self.head.operation.with_value(self.value()), key: self.key(), ..self.head }
    }

    /// The operation, without its bytes.
    #[inline]
    pub fn head(&self) -> &Update<'static> {
        &self.head
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.key.of(&self.datagram)
    }

    /// Releases the update's memory for reuse.
    pub fn into_bytes(self) -> StoredBytes {
        StoredBytes(self.datagram)
    }

    /// The key, shared.
    #[inline]
    pub fn stored_key(&self) -> StoredKey {
        StoredKey { datagram: self.datagram.clone(), key: self.key }
    }

    /// Whether it has several keys.
    #[inline]
    pub fn is_transaction(&self) -> bool {
        matches!(self.head.operation, Operation::Transaction(_))
    }

    /// Calls `act` with each distinct key.
    #[inline]
    pub fn each_key(&self, mut act: impl FnMut(&[u8])) {
        if self.is_transaction() {
            self.stored_keys().iter().for_each(|key| act(key));
        } else {
            act(self.key());
        }
    }

    /// Whether this is one of its keys.
    pub fn has_key(&self, key: &[u8]) -> bool {
        let mut found = false;
        self.each_key(|own| found |= own == key);
        found
    }

    /// Its distinct keys; those of a transaction in order.
    pub fn stored_keys(&self) -> Keys {
        if !self.is_transaction() {
            return Keys::from([self.stored_key()]);
        }
        let of = |step: Step<'_>| StoredKey {
            datagram: self.datagram.clone(),
            key: place(step.key, &self.datagram),
        };
        let mut keys: Keys = Step::each(self.value()).map(of).collect();
        keys.sort_unstable_by(|one, other| one.deref().cmp(other));
        keys.dedup();
        keys
    }

    /// The bytes that the operation carries.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.value.of(&self.datagram)
    }

    /// The datagram.
    pub fn datagram(&self) -> &[u8] {
        &self.datagram
    }
}

/// Position of `part` in `whole`; an empty part may be anywhere.
fn place(part: &[u8], whole: &[u8]) -> Place {
    if part.is_empty() {
        return Place::default();
    }
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize);
    let start = start.filter(|start| start + part.len() <= whole.len());
    let start = start.expect("the parts of an update are parts of the datagram that it was decoded from");
    let number = |of: usize| u16::try_from(of).expect("datagrams are shorter");
    Place { start: number(start), length: number(part.len()) }
}

impl Operation<'_> {
    /// The same operation with other bytes.
    fn with_value<'b>(&self, value: &'b [u8]) -> Operation<'b> {
        match *self {
            Self::Set { expiry, .. } => Operation::Set { value, expiry },
            Self::SetLarge { expiry, .. } => Operation::SetLarge { reference: value, expiry },
            Self::Append(_) => Operation::Append(value),
            Self::AppendLarge(_) => Operation::AppendLarge(value),
            Self::Transaction(_) => Operation::Transaction(value),
            Self::SetHash { expiry, .. } => Operation::SetHash { fields: value, expiry },
            Self::SetLong { expiry, .. } => Operation::SetLong { value, expiry },
            Self::SetFields { only_new, .. } => Operation::SetFields { fields: value, only_new },
            Self::RemoveFields(_) => Operation::RemoveFields(value),
            Self::IncrementField { delta, .. } => Operation::IncrementField { name: value, delta },
            Self::IncrementFieldFloat(_) => Operation::IncrementFieldFloat(value),
            Self::SetBit { offset, bit } => Operation::SetBit { offset, bit },
            Self::SetRange { offset, .. } => Operation::SetRange { offset, bytes: value },
            Self::Delete => Operation::Delete,
            Self::Increment(delta) => Operation::Increment(delta),
            Self::IncrementFloat(delta) => Operation::IncrementFloat(delta),
            Self::Expire { at_ms, condition } => Operation::Expire { at_ms, condition },
            Self::Persist => Operation::Persist,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientId, Condition, Datagram, Expiry, KeyDigest, KeyspaceId, OpId};
    use alloc::vec::Vec;
    use core::net::Ipv4Addr;

    #[test]
    fn stored_update_equals_the_received_one() {
        let set = Operation::Set { value: b"blue", expiry: Expiry::At(7) };
        for operation in
            [set, Operation::Append(b"er"), Operation::Delete, Operation::Increment(-3), Operation::Persist]
        {
            let update = Update {
                keyspace: KeyspaceId(3),
                op: OpId { client: ClientId(5), sequence: 9 },
                digest: KeyDigest([1; 16]),
                reply_to: None,
                watermark: 4,
                condition: Condition::IfPresent,
                return_old: true,
                operation,
                key: b"sky",
            };
            let mut datagram = Vec::new();
            update.encode(&mut datagram);
            let Ok((_, Datagram::Update(decoded))) = Datagram::decode(&datagram) else { panic!("an update") };
            let stored = StoredUpdate::new(&decoded, &datagram, None, StoredBytes::default());
            assert_eq!((stored.update(), stored.datagram()), (update, &datagram[..]));
            let key = stored.stored_key();
            assert_eq!(&*key, b"sky");
            let from = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 9), 7);
            let stored = StoredUpdate::new(&decoded, &datagram, Some(from), stored.into_bytes());
            assert_eq!(&*key, b"sky", "it was shared");
            let Ok((_, Datagram::Update(stamped))) = Datagram::decode(stored.datagram()) else {
                panic!("still one")
            };
            assert_eq!((stamped, stamped.reply_to), (stored.update(), Some(from)));
        }
    }
}
