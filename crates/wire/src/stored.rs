//! An update that is kept: the datagram as it arrived, decoded once.

use crate::{Operation, Update, stamp_reply_to};
use alloc::boxed::Box;
use core::net::SocketAddrV4;
use core::ops::Range;

/// An update and its datagram. What it names is kept decoded; the key and the value are where they arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredUpdate {
    datagram: Box<[u8]>,
    /// Without its bytes.
    head: Update<'static>,
    key: Range<usize>,
    value: Range<usize>,
}

impl StoredUpdate {
    /// Of an update and the datagram that it was decoded from.
    pub fn new(update: &Update<'_>, datagram: &[u8]) -> Self {
        let value = update.operation.value();
        let Update { keyspace, op, digest, reply_to, watermark, condition, return_old, operation, key } =
            *update;
        let operation = operation.with_value(&[]);
        Self {
            head: Update {
                keyspace,
                op,
                digest,
                reply_to,
                watermark,
                condition,
                return_old,
                operation,
                key: &[],
            },
            key: place(key, datagram),
            value: place(value, datagram),
            datagram: datagram.into(),
        }
    }

    /// Has the reply sent there, unless the update says where; it is written into the datagram, too.
    pub fn stamp(&mut self, from: SocketAddrV4) {
        stamp_reply_to(&mut self.datagram, from);
        self.head.reply_to.get_or_insert(from);
    }

    /// The update.
    pub fn update(&self) -> Update<'_> {
        Update { operation: self.head.operation.with_value(self.value()), key: self.key(), ..self.head }
    }

    /// The operation without what it carries.
    pub fn head(&self) -> &Update<'static> {
        &self.head
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.datagram[self.key.clone()]
    }

    /// What the operation carries.
    pub fn value(&self) -> &[u8] {
        &self.datagram[self.value.clone()]
    }

    /// The datagram.
    pub fn datagram(&self) -> &[u8] {
        &self.datagram
    }
}

/// Where a part of a datagram stands in it; an empty one may stand anywhere.
fn place(part: &[u8], whole: &[u8]) -> Range<usize> {
    if part.is_empty() {
        return 0..0;
    }
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize);
    let start = start.filter(|start| start + part.len() <= whole.len());
    let start = start.expect("the parts of an update are parts of the datagram that it was decoded from");
    start..start + part.len()
}

impl Operation<'_> {
    /// The same operation with other bytes, if it carries any.
    fn with_value<'b>(&self, value: &'b [u8]) -> Operation<'b> {
        match *self {
            Self::Set { expiry, .. } => Operation::Set { value, expiry },
            Self::Append(_) => Operation::Append(value),
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
    fn what_is_kept_is_what_arrived() {
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
            let mut stored = StoredUpdate::new(&decoded, &datagram);
            assert_eq!((stored.update(), stored.datagram()), (update, &datagram[..]));
            let from = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 9), 7);
            stored.stamp(from);
            let Ok((_, Datagram::Update(stamped))) = Datagram::decode(stored.datagram()) else {
                panic!("still one")
            };
            assert_eq!((stamped, stamped.reply_to), (stored.update(), Some(from)));
        }
    }
}
