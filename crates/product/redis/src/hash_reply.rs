//! Replies of commands on hashes.

use crate::error::CommandError;
use crate::resp::{Protocol, ReplyWriter};
use alloc::boxed::Box;
use alloc::vec::Vec;
use nicekv_client::{Answer, OperationError, Outcome};
use nicekv_proto::Form;
use nicekv_proto::glob;
use nicekv_proto::hash::Field;

/// How to make the reply of a command on a hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashReply {
    /// After an update: the number of fields added or removed, or the new number.
    Integer,
    /// After an update: OK.
    Stored,
    /// After an update that is answered with the hash: the new number in this field.
    Sum(Box<[u8]>),
    /// The value of a field.
    Value(Box<[u8]>),
    /// The values of several fields.
    Values(Vec<Box<[u8]>>),
    /// Whether the field exists.
    Has(Box<[u8]>),
    /// Length of the value of a field.
    LengthOf(Box<[u8]>),
    /// Number of fields.
    Count,
    /// All fields with their values.
    All,
    /// The names of all fields.
    AllNames,
    /// The values of all fields.
    AllValues,
    /// The name of a random field.
    Any(Seed),
    /// `count` different random fields; if negative, `-count` fields that may repeat.
    Some { count: i64, with_values: bool, seed: Seed },
    /// Fields whose names match the pattern, with or without values.
    Scan { pattern: Option<Box<[u8]>>, with_values: bool },
}

/// State of a pseudo-random generator (xorshift), seeded by the host's random source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// A number below `end`.
    fn draw(&mut self, end: usize) -> usize {
        self.0 |= 1;
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 16) % end as u64) as usize
    }
}

impl HashReply {
    /// The error reply for a failed request.
    pub fn error(&self, error: OperationError, cause: &str) -> CommandError {
        match error {
            OperationError::NotAnInteger => CommandError::fixed("ERR hash value is not an integer"),
            OperationError::NotAFloat => CommandError::fixed("ERR hash value is not a float"),
            OperationError::Overflow if matches!(self, Self::Sum(_)) => CommandError::NOT_FINITE,
            OperationError::ResultTooLong { limit } => CommandError::hash_too_long(limit),
            other => CommandError::of_operation(other, cause),
        }
    }

    /// Heap bytes in use.
    pub fn memory(&self) -> usize {
        match self {
            Self::Sum(name) | Self::Value(name) | Self::Has(name) | Self::LengthOf(name) => name.len(),
            Self::Values(names) => {
                names.iter().map(|name| name.len()).sum::<usize>() + names.capacity() * size_of::<Box<[u8]>>()
            }
            Self::Scan { pattern, .. } => pattern.as_ref().map_or(0, |pattern| pattern.len()),
            _ => 0,
        }
    }

    /// Whether the reply needs a value that a get has read.
    pub fn reads(&self) -> bool {
        !matches!(self, Self::Integer | Self::Stored | Self::Sum(_))
    }

    pub fn write(&self, answer: &Answer<'_>, reply: &mut ReplyWriter<'_>) {
        if answer.outcome == Outcome::Done && self.reads() && answer.form != Form::Hash {
            return reply.error(CommandError::WRONG_TYPE.as_bytes());
        }
        let hash = answer.value.unwrap_or_default();
        let value_of = |name: &[u8]| Field::value_of(hash, name);
        let count = || Field::each(hash).count();
        match self {
            Self::Integer => reply.integer(answer.integer),
            Self::Stored => reply.simple("OK"),
            Self::Sum(name) => reply.bulk(value_of(name).unwrap_or_default()),
            Self::Value(name) => reply.bulk_or_null(value_of(name), None),
            Self::Values(names) => {
                reply.array(names.len());
                names.iter().for_each(|name| reply.bulk_or_null(value_of(name), None));
            }
            Self::Has(name) => reply.integer(value_of(name).is_some().into()),
            Self::LengthOf(name) => reply.integer(value_of(name).map_or(0, |value| value.len() as i64)),
            Self::Count => reply.integer(count() as i64),
            Self::All => {
                reply.map(count());
                Field::each(hash).for_each(|field| write_pair(&field, reply));
            }
            Self::AllNames => {
                reply.array(count());
                Field::each(hash).for_each(|field| reply.bulk(field.name));
            }
            Self::AllValues => {
                reply.array(count());
                Field::each(hash).for_each(|field| reply.bulk(field.value));
            }
            Self::Any(seed) => {
                let any = { *seed }.draw(count().max(1));
                reply.bulk_or_null(Field::each(hash).nth(any).map(|field| field.name), None);
            }
            Self::Some { count, with_values, seed } => {
                write_some(&Field::each(hash).collect::<Vec<_>>(), (*count, *with_values), *seed, reply);
            }
            Self::Scan { pattern, with_values } => {
                write_scanned(hash, (pattern.as_deref(), *with_values), reply);
            }
        }
    }
}

fn write_pair(field: &Field<'_>, reply: &mut ReplyWriter<'_>) {
    reply.bulk(field.name);
    reply.bulk(field.value);
}

fn write_some(
    fields: &[Field<'_>],
    (count, with_values): (i64, bool),
    mut seed: Seed,
    reply: &mut ReplyWriter<'_>,
) {
    let times = count.unsigned_abs() as usize;
    let chosen: Vec<&Field<'_>> = if fields.is_empty() {
        Vec::new()
    } else if count < 0 {
        (0..times).map(|_| &fields[seed.draw(fields.len())]).collect()
    } else {
        let mut left: Vec<&Field<'_>> = fields.iter().collect();
        // A Fisher-Yates shuffle of as many fields as needed.
        if times < left.len() {
            for place in 0..times {
                let other = place + seed.draw(left.len() - place);
                left.swap(place, other);
            }
            left.truncate(times);
        }
        left
    };
    let nested = with_values && reply.protocol == Protocol::Resp3;
    reply.array(if with_values && !nested { 2 * chosen.len() } else { chosen.len() });
    for field in chosen {
        if nested {
            reply.array(2);
        }
        if with_values { write_pair(field, reply) } else { reply.bulk(field.name) }
    }
}

/// Writes all matching fields at once, as Redis does for short hashes.
fn write_scanned(hash: &[u8], (pattern, with_values): (Option<&[u8]>, bool), reply: &mut ReplyWriter<'_>) {
    let is_wanted = |field: &Field<'_>| pattern.is_none_or(|pattern| glob::matches(pattern, field.name));
    let wanted = || Field::each(hash).filter(is_wanted);
    reply.array(2);
    reply.bulk(b"0");
    reply.array(wanted().count() * if with_values { 2 } else { 1 });
    wanted().for_each(|field| if with_values { write_pair(&field, reply) } else { reply.bulk(field.name) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_fields_are_distinct_unless_repetition_is_asked_for() {
        let names: Vec<String> = (0..20).map(|number| format!("f{number}")).collect();
        let fields: Vec<_> = names.iter().map(|name| Field { name: name.as_bytes(), value: b"v" }).collect();
        let chosen = |count, seed| {
            let mut out = crate::resp::ReplyBuffer::default();
            let mut reply = ReplyWriter { out: &mut out, protocol: Protocol::Resp2 };
            write_some(&fields, (count, false), Seed(seed), &mut reply);
            let mut bytes = Vec::new();
            out.drain(|piece| {
                bytes.extend_from_slice(piece);
                Some(piece.len())
            });
            let text = String::from_utf8(bytes).unwrap();
            text.lines().filter(|line| line.starts_with('f')).map(str::to_owned).collect::<Vec<_>>()
        };
        let mut seen = std::collections::BTreeSet::new();
        for seed in 1..200 {
            let mut some = chosen(5, seed);
            seen.extend(some.iter().cloned());
            some.sort();
            some.dedup();
            assert_eq!(some.len(), 5, "seed {seed}");
            assert_eq!(chosen(-50, seed).len(), 50);
        }
        assert_eq!(seen.len(), fields.len());
        assert_eq!(chosen(20, 7), names);
        assert_eq!(chosen(i64::MAX, 7), names);
    }
}
