//! Declarative macros: a message, a part or an enum is declared once, and gets its struct, layout,
//! strict codec and tests.
//!
//! * `message!` declares a datagram: its opcode (`crate::opcode` has the numbers), the header
//!   fields that it uses (the others are zero), and the fields of its body, in order.
//! * `part!` declares a repeated part of a message, or a stored record.
//! * `tagged!` declares an enum with fields, preceded by a tag byte.
//! * `code!` declares an enum without fields.
//!
//! A field is `name: Type`, or `name: Type as Codec` if the type has several encodings. `=> N
//! zeros` after it reserves bytes, which must be zero so that later versions can use them. `where
//! check` names a function that refuses inconsistent values.

/// Implemented by `message!`.
pub(crate) trait Message<'a>: Sized {
    /// Reads the body of a datagram, strictly.
    fn decode(header: &crate::Header, body: &'a [u8]) -> Result<Self, crate::DecodeError>;
}

/// Codec of a field: the given one, or its type.
macro_rules! codec_of {
    ($type:ty) => {
        $type
    };
    ($type:ty, $codec:ty) => {
        $codec
    };
}

/// Repeats its first argument once per occurrence of the second.
macro_rules! for_each {
    ($result:tt, $($each:tt)*) => {
        $result
    };
}

/// Fixed part of a declaration.
macro_rules! layout {
    ($visibility:vis $($field:ident : $codec:ty, $($zeros:literal)?;)*) => {
        #[allow(unreachable_pub, reason = "the layout of a part belongs to its codec, which is public")]
        #[derive(
            Clone,
            Copy,
            zerocopy::FromBytes,
            zerocopy::IntoBytes,
            zerocopy::KnownLayout,
            zerocopy::Immutable,
            zerocopy::Unaligned,
        )]
        #[repr(C)]
        $visibility struct Fixed {
            $($field: $crate::codec::Spaced<<$codec as $crate::codec::Codec>::Layout, { 0 $(+ $zeros)? }>,)*
        }
    };
}

macro_rules! message {
    ($(#[$meta:meta])* pub struct $name:ident<'a> $($rest:tt)*) => {
        message! { @declare [$(#[$meta])*] $name [<'a>] [<'static>] $($rest)* }
    };
    ($(#[$meta:meta])* pub struct $name:ident $($rest:tt)*) => {
        message! { @declare [$(#[$meta])*] $name [] [] $($rest)* }
    };
    (@declare [$(#[$meta:meta])*] $name:ident [$($generics:tt)*] [$($static_:tt)*]
        : $opcode:ident $(or $other:ident if $some:ident)? $(where $check:ident)? {
        header { $($(#[$header_meta:meta])* $header_field:ident : $header_type:ty),* $(,)? }
        body { $($(#[$field_meta:meta])* $field:ident : $type:ty $(as $codec:ty)? $(=> $zeros:literal zeros)?),* $(,)? }
    }) => {
        $(#[$meta])*
        pub struct $name $($generics)* {
            $($(#[$header_meta])* pub $header_field: $header_type,)*
            $($(#[$field_meta])* pub $field: $type,)*
        }

        const _: () = {
            use $crate::codec::{Codec, Spaced};
            use $crate::{DecodeError, Header, Opcode};
            use core::mem::size_of;

            layout! { $($field: codec_of!($type $(, $codec)?), $($zeros)?;)* }

            impl $($generics)* $name $($generics)* {
                /// Length of the datagram without its variable-length fields, in bytes.
                pub const FIXED_BYTES: usize = Header::BYTES + size_of::<Fixed>();

                fn header(&self) -> Header {
                    let opcode = Opcode::$opcode;
                    $(let opcode = if self.$some.is_some() { Opcode::$other } else { opcode };)?
                    Header { $($header_field: self.$header_field,)* ..Header::internal(opcode) }
                }

                /// Writes the datagram to `out`, which is cleared.
                pub fn encode(&self, out: &mut alloc::vec::Vec<u8>) {
                    self.header().encode(out, |out| {
                        let fixed = Fixed {
                            $($field: Spaced::new(<codec_of!($type $(, $codec)?)>::layout(&self.$field)),)*
                        };
                        $crate::bytes::put(out, &fixed);
                        $(<codec_of!($type $(, $codec)?)>::append_tail(&self.$field, out);)*
                    });
                }
            }

            impl<'a> $crate::declare::Message<'a> for $name $($generics)* {
                fn decode(header: &crate::Header, body: &'a [u8]) -> Result<Self, DecodeError> {
                    let mut tail = $crate::bytes::Reader::new(body);
                    let fixed = tail.layout_ref::<Fixed>(stringify!($name))?;
                    $(
                        let $field = <codec_of!($type $(, $codec)?)>::read(
                            stringify!($field),
                            &fixed.$field.layout,
                            &mut tail,
                        )?;
                        fixed.$field.check()?;
                    )*
                    tail.finish(stringify!($name))?;
                    let message = Self { $($header_field: header.$header_field,)* $($field,)* };
                    header.is_as(&message.header())?;
                    $(message.$check()?;)?
                    Ok(message)
                }
            }

            #[cfg(test)]
            impl $crate::samples::Sample for $name $($static_)* {
                fn sample(random: &mut $crate::samples::Random) -> Self {
                    loop {
                        let message = Self {
                            $($header_field: $crate::samples::Sample::sample(random),)*
                            $($field: <codec_of!($type $(, $codec)?) as Codec>::sample(random),)*
                        };
                        $(if message.$check().is_err() { continue; })?
                        return message;
                    }
                }
            }
        };
    };
}

macro_rules! part {
    ($(#[$meta:meta])* pub struct $name:ident<'a> $($rest:tt)*) => {
        part! { @declare [$(#[$meta])*] $name [<'a>] [<'static>] $($rest)* }
    };
    ($(#[$meta:meta])* pub struct $name:ident $($rest:tt)*) => {
        part! { @declare [$(#[$meta])*] $name [] [] $($rest)* }
    };
    (@declare [$(#[$meta:meta])*] $name:ident [$($generics:tt)*] [$($static_:tt)*] $(where $check:ident)? {
        $($(#[$field_meta:meta])* $field:ident : $type:ty $(as $codec:ty)? $(=> $zeros:literal zeros)?),* $(,)?
    }) => {
        $(#[$meta])*
        pub struct $name $($generics)* {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        const _: () = {
            use $crate::DecodeError;
            use $crate::bytes::Reader;
            use $crate::codec::{Codec, InList, Spaced};

            layout! { pub $($field: codec_of!($type $(, $codec)?), $($zeros)?;)* }

            impl Codec for $name $($static_)* {
                part! { @value $name [$($generics)*] }
                type Layout = Fixed;

                fn layout(value: &Self::Value<'_>) -> Fixed {
                    Fixed { $($field: Spaced::new(<codec_of!($type $(, $codec)?)>::layout(&value.$field)),)* }
                }

                fn append_tail(value: &Self::Value<'_>, out: &mut alloc::vec::Vec<u8>) {
                    $(<codec_of!($type $(, $codec)?)>::append_tail(&value.$field, out);)*
                }

                fn read<'a>(
                    _: &'static str,
                    fixed: &Fixed,
                    tail: &mut Reader<'a>,
                ) -> Result<Self::Value<'a>, DecodeError> {
                    $(
                        let $field = <codec_of!($type $(, $codec)?) as Codec>::read(
                            stringify!($field),
                            &fixed.$field.layout,
                            tail,
                        )?;
                        fixed.$field.check()?;
                    )*
                    let value = $name { $($field,)* };
                    $(value.$check()?;)?
                    Ok(value)
                }

                #[cfg(test)]
                fn sample(random: &mut $crate::samples::Random) -> Self {
                    loop {
                        let value = $name { $($field: <codec_of!($type $(, $codec)?) as Codec>::sample(random),)* };
                        $(if value.$check().is_err() { continue; })?
                        return value;
                    }
                }
            }

            impl<'a> InList<'a> for $name $($generics)* {
                type Codec = $name $($static_)*;
            }
        };
    };
    (@value $name:ident [<'a>]) => { type Value<'a> = $name<'a>; };
    (@value $name:ident []) => { type Value<'a> = Self; };
}

macro_rules! tagged {
    ($(#[$meta:meta])* pub enum $name:ident<'a> $($rest:tt)*) => {
        tagged! { @declare [$(#[$meta])*] $name [<'a>] [<'static>] $($rest)* }
    };
    ($(#[$meta:meta])* pub enum $name:ident $($rest:tt)*) => {
        tagged! { @declare [$(#[$meta])*] $name [] [] $($rest)* }
    };
    (@declare [$(#[$meta:meta])*] $name:ident [$($generics:tt)*] [$($static_:tt)*] $(where $check:ident)? {
        $(
            $(#[$variant_meta:meta])*
            $tag:literal => $variant:ident
            $(($inner:ty $(as $inner_codec:ty)?))?
            $({ $($(#[$field_meta:meta])* $field:ident : $type:ty $(as $codec:ty)?),* $(,)? })?
        ),* $(,)?
    }) => {
        $(#[$meta])*
        pub enum $name $($generics)* {
            $(
                $(#[$variant_meta])*
                $variant $(($inner))? $({ $($(#[$field_meta])* $field: $type,)* })?,
            )*
        }

        const _: () = {
            use $crate::DecodeError;
            use $crate::bytes::{Reader, reserved_bytes};
            use $crate::codec::{Codec, Tagged};

            /// Size of the longest variant.
            const BYTES: usize = {
                let sizes = [$(
                    0 $(+ size_of::<<codec_of!($inner $(, $inner_codec)?) as Codec>::Layout>())?
                    $($(+ size_of::<<codec_of!($type $(, $codec)?) as Codec>::Layout>())*)?
                ),*];
                let (mut longest, mut at) = (0, 0);
                while at < sizes.len() {
                    if sizes[at] > longest {
                        longest = sizes[at];
                    }
                    at += 1;
                }
                longest
            };

            fn take<'a, C: Codec>(
                field: &'static str,
                fields: &mut Reader<'_>,
                tail: &mut Reader<'a>,
            ) -> Result<C::Value<'a>, DecodeError> {
                C::read(field, fields.layout_ref::<C::Layout>(field)?, tail)
            }

            impl Codec for $name $($static_)* {
                part! { @value $name [$($generics)*] }
                type Layout = Tagged<BYTES>;

                #[allow(unused_mut, reason = "not all enums have fields")]
                fn layout(value: &<Self as Codec>::Value<'_>) -> Tagged<BYTES> {
                    match value {
                        $($name::$variant { $(0: for_each!(inner, $inner))? $($($field),*)? } => {
                            let (mut layout, _end) = (Tagged::new($tag), 0);
                            $(let _end = layout.store(_end, <codec_of!($inner $(, $inner_codec)?)>::layout(inner));)?
                            $($(let _end = layout.store(_end, <codec_of!($type $(, $codec)?)>::layout($field));)*)?
                            layout
                        })*
                    }
                }

                fn append_tail(value: &<Self as Codec>::Value<'_>, _out: &mut alloc::vec::Vec<u8>) {
                    match value {
                        $($name::$variant { $(0: for_each!(inner, $inner))? $($($field),*)? } => {
                            $(<codec_of!($inner $(, $inner_codec)?)>::append_tail(inner, _out);)?
                            $($(<codec_of!($type $(, $codec)?)>::append_tail($field, _out);)*)?
                        })*
                    }
                }

                fn read<'a>(
                    name: &'static str,
                    layout: &Tagged<BYTES>,
                    tail: &mut Reader<'a>,
                ) -> Result<<Self as Codec>::Value<'a>, DecodeError> {
                    let mut fields = Reader::new(&layout.fields);
                    let value = match layout.tag {
                        $($tag => $name::$variant {
                            $(0: take::<codec_of!($inner $(, $inner_codec)?)>(name, &mut fields, tail)?,)?
                            $($($field: take::<codec_of!($type $(, $codec)?)>(stringify!($field), &mut fields, tail)?,)*)?
                        },)*
                        other => return Err(DecodeError::UnknownValue { field: name, value: other.into() }),
                    };
                    reserved_bytes(name, fields.rest())?;
                    $(value.$check()?;)?
                    Ok(value)
                }

                #[cfg(test)]
                fn sample(random: &mut $crate::samples::Random) -> Self {
                    let tags = [$($tag),*];
                    loop {
                        let value = match tags[random.below(tags.len())] {
                            $($tag => $name::$variant {
                                $(0: <codec_of!($inner $(, $inner_codec)?) as Codec>::sample(random),)?
                                $($($field: <codec_of!($type $(, $codec)?) as Codec>::sample(random),)*)?
                            },)*
                            _ => unreachable!("one of the tags"),
                        };
                        $(if value.$check().is_err() { continue; })?
                        return value;
                    }
                }
            }
        };
    };
}

macro_rules! code {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$variant_meta:meta])* $variant:ident = $code:literal),* $(,)?
    }) => {
        $(#[$meta])*
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_meta])* $variant = $code,)*
        }

        impl $crate::codec::Codec for $name {
            type Value<'a> = Self;
            type Layout = u8;

            fn layout(value: &Self) -> u8 {
                *value as u8
            }

            fn read<'a>(
                field: &'static str,
                code: &u8,
                _: &mut $crate::bytes::Reader<'a>,
            ) -> Result<Self, $crate::DecodeError> {
                match *code {
                    $($code => Ok(Self::$variant),)*
                    other => Err($crate::DecodeError::UnknownValue { field, value: other.into() }),
                }
            }

            #[cfg(test)]
            fn sample(random: &mut $crate::samples::Random) -> Self {
                const ALL: &[$name] = &[$($name::$variant),*];
                ALL[random.below(ALL.len())]
            }
        }
    };
}

pub(crate) use {code, codec_of, for_each, layout, message, part, tagged};
