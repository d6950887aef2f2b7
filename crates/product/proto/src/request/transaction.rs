//! Transactions: several operations on keys of one partition, as one op.
//!
//! ```text
//!   Operation::Transaction   [ key, Require ][ key, Apply ][ key, Read ] …      an Update, whose key is that of the first step
//!   its decision, its answer [ result       ][ result     ][ result    ] …      or a status alone: nothing took effect
//! ```
//!
//! Steps are performed in order, each on the results of those before. A failing step (an increment
//! of a non-number) reports the failure in its result, and the others still count; an unmet
//! requirement aborts the transaction without any effect.
//!
//! A script is a step, too, and follows the steps that declare its keys. Its effect on a key is
//! recorded as the effect of the declaring step:
//!
//! ```text
//!   Operation::Transaction   [ key, Declare ][ other key, Declare ][ key, Run ]
//!   its decision             [ effect       ][ effect             ][ reply    ]
//! ```

use crate::bytes::{Reader, in_range};
use crate::codec::{self, Codec, Key, Outcome, Trimmed};
use crate::declare::{codec_of, for_each, layout, part, tagged};
use crate::effect::Effect;
use crate::limits::TRANSACTION_BYTES_MAX;
#[cfg(test)]
use crate::samples::Random;
use crate::{Condition, DecodeError, Form, Operation, Status};
use alloc::vec::Vec;
use core::mem::size_of;
use zerocopy::network_endian::U16;

tagged! {
    /// What a step does.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub enum Act<'a> where is_possible {
        /// Aborts the transaction unless this condition holds.
        1 => Require(Condition),
        /// Returns the value.
        2 => Read,
        /// Performs an update.
        3 => Apply {
            /// The operation; neither of a large value nor a transaction.
            operation: Operation<'a> as Operation<'static>,
            /// Condition of the update.
            condition: Condition,
            /// Whether the result contains the old value.
            return_old: bool,
        },
        /// Declares the key for the next script, which must follow without other steps between;
        /// returns nothing.
        4 => Declare,
        /// Runs a script on the declared keys; its own key only determines the partition. Returns
        /// its reply, encoded as RESP2.
        5 => Run {
            /// Call time in milliseconds of the Unix epoch: the script's clock.
            unix_ms: u64,
            /// Whether it is read-only.
            is_read_only: bool,
            /// Source code.
            source: &'a [u8] as Outcome,
            /// Its encoded [`Argument`]s.
            arguments: &'a [u8] as Arguments,
        },
    }
}

part! {
    /// An argument of a script.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Argument<'a> {
        /// The argument; may be empty.
        bytes: &'a [u8] as Outcome,
    }
}

impl<'a> Argument<'a> {
    /// Appends it to encoded arguments.
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<Argument<'static>>(self, out);
    }

    /// Iterates over the arguments of a decoded script.
    pub fn each(arguments: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        codec::each::<Argument<'static>>(arguments).map(|argument| argument.bytes)
    }
}

impl Act<'_> {
    fn is_possible(&self) -> Result<(), DecodeError> {
        let refused = Err(DecodeError::UnknownValue { field: "step of a transaction", value: 0 });
        match self {
            Self::Apply { operation: Operation::Transaction(_), .. } => refused,
            Self::Apply { operation, .. } if operation.reference().is_some() => refused,
            _ => Ok(()),
        }
    }
}

part! {
    /// A step of a transaction.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Step<'a> where is_possible {
        /// The key; all keys belong to one partition.
        key: &'a [u8] as Key,
        /// The action.
        act: Act<'a> as Trimmed<Act<'static>>,
    }
}

part! {
    /// Outcome of a step: the result for the client, and the effect on the key for the members.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Taken<'a> {
        /// Status of the result.
        status: Status,
        /// Effect on the key.
        effect: Effect,
        /// Whether the result has a value, which is `value`.
        value_is_result: bool,
        /// Form of the value.
        form: Form,
        /// The bytes of [`Effect::Store`], or of the result, or of both.
        value: &'a [u8] as Outcome,
        /// Expiry time of the key afterwards, in milliseconds of the Unix epoch; 0: never.
        expiry_ms: u64,
        /// Integer of the result.
        integer: i64,
    }
}

/// Encoded [`Argument`]s; may be empty.
pub struct Arguments;

impl Codec for Arguments {
    type Value<'a> = &'a [u8];
    type Layout = U16;

    fn layout(arguments: &&[u8]) -> U16 {
        Outcome::layout(arguments)
    }

    fn append_tail(arguments: &&[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(arguments);
    }

    fn read<'a>(field: &'static str, length: &U16, tail: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
        let arguments = Outcome::read(field, length, tail)?;
        let mut reader = Reader::new(arguments);
        while !reader.is_empty() {
            codec::read::<Argument<'static>>(field, &mut reader)?;
        }
        Ok(arguments)
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> &'static [u8] {
        let mut arguments = Vec::new();
        (0..random.below(3)).for_each(|number| Argument { bytes: &[7; 3][..number] }.append(&mut arguments));
        arguments.leak()
    }
}

/// Encoded [`Step`]s, at least one.
pub struct Steps;

impl Codec for Steps {
    type Value<'a> = &'a [u8];
    type Layout = U16;

    fn layout(steps: &&[u8]) -> U16 {
        Outcome::layout(steps)
    }

    fn append_tail(steps: &&[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(steps);
    }

    fn read<'a>(field: &'static str, length: &U16, tail: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
        let length = in_range(field, length.get().into(), 1, TRANSACTION_BYTES_MAX)?;
        let steps = tail.bytes(length, field)?;
        let mut reader = Reader::new(steps);
        while !reader.is_empty() {
            codec::read::<Step<'static>>(field, &mut reader)?;
        }
        Ok(steps)
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> &'static [u8] {
        loop {
            let mut steps = Vec::new();
            (0..=random.below(2)).for_each(|_| Step::sample(random).append(&mut steps));
            // Keeps samples short.
            if steps.len() <= TRANSACTION_BYTES_MAX {
                return steps.leak();
            }
        }
    }
}

impl<'a> Step<'a> {
    fn is_possible(&self) -> Result<(), DecodeError> {
        let Act::Apply { operation, .. } = self.act else { return Ok(()) };
        operation.check_beside(self.key.len())
    }

    /// Appends it to encoded steps.
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<Step<'static>>(self, out);
    }

    /// Iterates over the steps of an [`Operation::Transaction`].
    pub fn each(steps: &'a [u8]) -> impl Iterator<Item = Self> + use<'a> {
        codec::each::<Step<'static>>(steps)
    }
}

impl<'a> Taken<'a> {
    /// Appends it to encoded outcomes.
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<Trimmed<Taken<'static>>>(self, out);
    }

    /// Iterates over the outcomes in a decision or a reply, up to the first malformed one.
    pub fn each(taken: &'a [u8]) -> impl Iterator<Item = Self> + use<'a> {
        let mut reader = Reader::new(taken);
        core::iter::from_fn(move || {
            let more = !reader.is_empty();
            more.then(|| codec::read::<Trimmed<Taken<'static>>>("results", &mut reader).ok())?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::check_part;
    use crate::{Expiry, OpId};
    use alloc::vec;

    #[test]
    fn step_and_result_codecs_are_strict() {
        check_part::<Step<'static>>();
        check_part::<Trimmed<Taken<'static>>>();
    }

    #[test]
    fn step_overhead_is_small() {
        let steps = vec![
            Step { key: b"k", act: Act::Require(Condition::IfVersion(OpId::NONE)) },
            Step { key: b"k", act: Act::Read },
            Step {
                key: b"l",
                act: Act::Apply {
                    operation: Operation::Set { value: b"value", expiry: Expiry::Never },
                    condition: Condition::Always,
                    return_old: false,
                },
            },
        ];
        let mut bytes = Vec::new();
        let lengths = steps.iter().map(|step| {
            let before = bytes.len();
            step.append(&mut bytes);
            bytes.len() - before
        });
        assert_eq!(lengths.collect::<Vec<_>>(), [6, 5, 13]);
        assert_eq!(Step::each(&bytes).collect::<Vec<_>>(), steps);
    }

    #[test]
    fn malformed_result_ends_the_list() {
        let taken = Taken {
            status: Status::Ok,
            effect: Effect::StorePrepared,
            value_is_result: false,
            form: Form::Plain,
            value: b"",
            expiry_ms: 0,
            integer: 0,
        };
        let mut bytes = Vec::new();
        taken.append(&mut bytes);
        assert_eq!(bytes.len(), 3);
        bytes.push(200);
        assert_eq!(Taken::each(&bytes).collect::<Vec<_>>(), [taken]);
    }
}
