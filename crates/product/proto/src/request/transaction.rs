//! Several operations on keys of one partition, as one op.
//!
//! ```text
//!   Operation::Transaction   [ key, Require ][ key, Apply ][ key, Read ] …      an Update, whose key is that of the first step
//!   its decision, its answer [ result       ][ result     ][ result    ] …      or a status alone: nothing took effect
//! ```
//!
//! The steps are taken one after the other, each on what those before have left. One that fails (an increment of what is no number) says so in its result, and the others count;
//! one that requires what is not so ends the transaction, and nothing of it takes effect.
//!
//! A script is a step, too, behind those that declare its keys; what it does to a key is the effect of the step that declares that:
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
    /// What a step does with its key.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub enum Act<'a> where is_possible {
        /// Ends the transaction if this does not hold.
        1 => Require(Condition),
        /// Tells the value.
        2 => Read,
        /// An update.
        3 => Apply {
            /// What it does: none that carries a large value, nor a transaction.
            operation: Operation<'a> as Operation<'static>,
            /// When it applies.
            condition: Condition,
            /// Whether the result has the value from before.
            return_old: bool,
        },
        /// Gives the key to the next script, whose declarations stand before it without anything between; tells nothing.
        4 => Declare,
        /// Runs a script on what was declared for it; its key says no more than where it runs. Tells its reply, in the words of RESP2.
        5 => Run {
            /// When it was called, in milliseconds of the Unix epoch: the time that it knows.
            unix_ms: u64,
            /// Whether it may change nothing.
            is_read_only: bool,
            /// What it is.
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
        /// What it is; may be empty.
        bytes: &'a [u8] as Outcome,
    }
}

impl<'a> Argument<'a> {
    /// Appends it to others.
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<Argument<'static>>(self, out);
    }

    /// Those of a script that was decoded.
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
        /// Of the partition of all the others.
        key: &'a [u8] as Key,
        /// What is done with it.
        act: Act<'a> as Trimmed<Act<'static>>,
    }
}

part! {
    /// What became of a step: the answer to the client and, of what it did to its key, all that the members need.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Taken<'a> {
        /// Of the step.
        status: Status,
        /// What it does to its key.
        effect: Effect,
        /// Whether the result has a value, namely `value`.
        value_is_result: bool,
        /// What that is.
        form: Form,
        /// The bytes of [`Effect::Store`], or of the result, or of both.
        value: &'a [u8] as Outcome,
        /// The key's expiry time after it, in milliseconds of the Unix epoch; 0 is never.
        expiry_ms: u64,
        /// The result's integer.
        integer: i64,
    }
}

/// Encoded [`Argument`]s, or none.
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
            // Samples get shorter.
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

    /// Appends it to those of a transaction.
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<Step<'static>>(self, out);
    }

    /// The steps of an [`Operation::Transaction`].
    pub fn each(steps: &'a [u8]) -> impl Iterator<Item = Self> + use<'a> {
        codec::each::<Step<'static>>(steps)
    }
}

impl<'a> Taken<'a> {
    /// Appends it to those of a transaction.
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<Trimmed<Taken<'static>>>(self, out);
    }

    /// What became of the steps, of a decision or an answer. Nothing behind what is none.
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
    fn every_bit_of_a_step_and_of_a_result_counts() {
        check_part::<Step<'static>>();
        check_part::<Trimmed<Taken<'static>>>();
    }

    #[test]
    fn steps_take_little_more_than_their_bytes() {
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
    fn what_is_no_result_ends_the_list() {
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
