//! The numbers of INCRBYFLOAT: what Redis' `long double` is on x86, the 80-bit format of the x87, on every machine.
//!
//! ```text
//!   text ──parse──▶ ratio of two integers ──round──▶ significand · 2^n ──to_text──▶ decimal digits
//!                                             ▲           │
//!                                             └── sum ◀───┘
//! ```
//!
//! A node must compute what every other node and Redis compute, so nothing is left to a processor's or a C library's floats. Every step
//! is exact in big integers but one: `round`, to the nearest number with 64 significant bits, ties to even. Reading is
//! `strtold` of the C library without leading blanks, writing is its `%.17Lf` without trailing zeros.

#![cfg_attr(not(test), no_std)]
extern crate alloc;

use alloc::format;
use alloc::string::{String, ToString};
use core::cmp::Ordering;
use nicekv_proto::number::LongDouble;
use num_bigint::{BigInt, BigUint, Sign};

const SIGNIFICAND_BITS: i64 = 64;
/// The lowest bit of the significand of the smallest numbers stands for 2 to this power.
const LOWEST_BIT_MIN: i64 = -16_445;
/// Digits after the point that [`Arithmetic::to_text`] writes.
const DECIMALS: usize = 17;
/// As in Redis, a text of this many bytes or more is not accepted as a number.
const TEXT_BYTES_MAX: usize = 5 * 1024;
/// Powers of ten or two beyond this one are out of range, whatever their digits: no text is long
/// enough to make up for them.
const POWER_MAX: i64 = 40_000;

/// The arithmetic of [`LongDouble`].
pub trait Arithmetic: Sized {
    /// Parses decimal or (after `0x`) hexadecimal digits, with or without point and exponent, or
    /// `inf`. Refuses blanks, NaN, numbers that are too large for the format, and numbers other
    /// than 0 that would be rounded to 0.
    fn parse(text: &[u8]) -> Option<Self>;

    /// The number that `value`'s shortest decimal text stands for, so that the `f64` 0.1 becomes
    /// the nearest number to a tenth; `None` for NaN.
    fn from_f64(value: f64) -> Option<Self> {
        Self::parse(format!("{value:e}").as_bytes())
    }

    /// The sum; `None` if it, or one of the two numbers, is infinite.
    fn checked_add(self, other: Self) -> Option<Self>;

    /// Decimal digits without exponent, at most 17 after the point, no trailing zeros, no `-0`.
    fn to_text(self) -> String;
}

impl Arithmetic for LongDouble {
    fn parse(text: &[u8]) -> Option<Self> {
        if text.len() >= TEXT_BYTES_MAX {
            return None;
        }
        let (negative, digits) = match text {
            [sign @ (b'+' | b'-'), rest @ ..] => (*sign == b'-', rest),
            unsigned => (false, unsigned),
        };
        if digits.eq_ignore_ascii_case(b"inf") || digits.eq_ignore_ascii_case(b"infinity") {
            return Some(infinite(negative));
        }
        let (digits, radix) = match digits {
            [b'0', b'x' | b'X', rest @ ..] => (rest, 16),
            decimal => (decimal, 10),
        };
        let Scientific { digits, power } = Scientific::parse(digits, radix)?;
        if digits == BigUint::ZERO {
            return Some(zero());
        }
        if power.abs() > POWER_MAX {
            return None;
        }
        let read = match (radix, power) {
            (16, _) => round(negative, &digits, &BigUint::from(1u8), power),
            (_, 0..) => round(negative, &(digits * ten_to(power)), &BigUint::from(1u8), 0),
            _ => round(negative, &digits, &ten_to(-power), 0),
        };
        Some(read).filter(|read| read.is_finite() && *read != zero())
    }

    fn checked_add(self, other: Self) -> Option<Self> {
        if !self.is_finite() || !other.is_finite() {
            return None;
        }
        let lowest_bit = lowest_bit_of(self).min(lowest_bit_of(other));
        let sum = in_units_of(self, lowest_bit) + in_units_of(other, lowest_bit);
        let negative = sum.sign() == Sign::Minus;
        let sum = round(negative, sum.magnitude(), &BigUint::from(1u8), lowest_bit);
        Some(sum).filter(|sum| sum.is_finite())
    }

    fn to_text(self) -> String {
        let (is_negative, _, significand) = self.parts();
        if !self.is_finite() {
            return if is_negative { "-inf" } else { "inf" }.to_string();
        }
        let scaled = BigUint::from(significand) * ten_to(DECIMALS as i64);
        let lowest_bit = lowest_bit_of(self);
        let scaled = match lowest_bit {
            0.. => scaled << lowest_bit,
            _ => rounded_quotient(&scaled, &(BigUint::from(1u8) << -lowest_bit)),
        };
        let digits = format!("{scaled:0>width$}", width = DECIMALS + 1);
        let (whole, fraction) = digits.split_at(digits.len() - DECIMALS);
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        let sign = if is_negative && scaled != BigUint::ZERO { "-" } else { "" };
        format!("{sign}{whole}{point}{fraction}")
    }
}

fn zero() -> LongDouble {
    LongDouble::from_parts(false, 0, 0).expect("zero is a number")
}

fn infinite(negative: bool) -> LongDouble {
    LongDouble::from_parts(negative, LongDouble::EXPONENT_INFINITE, LongDouble::HIGHEST_BIT)
        .expect("both infinities are numbers")
}

/// The power of two that the lowest bit of the significand stands for.
fn lowest_bit_of(number: LongDouble) -> i64 {
    LOWEST_BIT_MIN + i64::from(number.parts().1.max(1)) - 1
}

/// The number as a multiple of 2 to the power of `lowest_bit`, which must not exceed
/// [`lowest_bit_of`].
fn in_units_of(number: LongDouble, lowest_bit: i64) -> BigInt {
    let (is_negative, _, significand) = number.parts();
    let sign = if is_negative { Sign::Minus } else { Sign::Plus };
    BigInt::from_biguint(sign, BigUint::from(significand) << (lowest_bit_of(number) - lowest_bit))
}

/// The nearest number to `numerator / denominator` · 2^`power`.
fn round(negative: bool, numerator: &BigUint, denominator: &BigUint, power: i64) -> LongDouble {
    if *numerator == BigUint::ZERO {
        return zero();
    }
    // The highest bit of the quotient stands for 2 to the power of the difference of the
    // lengths in bits, or one less.
    let difference = numerator.bits() as i64 - denominator.bits() as i64;
    let reached = numerator << (-difference).max(0) >= denominator << difference.max(0);
    let lowest_bit = difference - i64::from(!reached) - (SIGNIFICAND_BITS - 1);
    let lowest_bit = lowest_bit.max(LOWEST_BIT_MIN - power);
    let quotient =
        rounded_quotient(&(numerator << (-lowest_bit).max(0)), &(denominator << lowest_bit.max(0)));
    // Rounding up may have carried, which makes the quotient one bit longer.
    let carried = quotient.bits() as i64 > SIGNIFICAND_BITS;
    let lowest_bit = power + lowest_bit + i64::from(carried);
    let significand = u64::try_from(quotient >> u8::from(carried)).expect("64 bits at most");
    let exponent = lowest_bit - LOWEST_BIT_MIN + i64::from(significand >= LongDouble::HIGHEST_BIT);
    match u16::try_from(exponent) {
        _ if significand == 0 => zero(),
        Ok(exponent) if exponent < LongDouble::EXPONENT_INFINITE => {
            LongDouble::from_parts(negative, exponent, significand).expect("rounded to the format")
        }
        _ => infinite(negative),
    }
}

/// The number `digits` · 10^`power`; of a hexadecimal text, `digits` · 2^`power`.
struct Scientific {
    digits: BigUint,
    power: i64,
}

impl Scientific {
    fn parse(text: &[u8], radix: u8) -> Option<Self> {
        let (marks, bits_per_digit) = if radix == 16 { (b"pP", 4) } else { (b"eE", 1) };
        let (mantissa, exponent) = match text.iter().position(|byte| marks.contains(byte)) {
            Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let point = mantissa.iter().position(|byte| *byte == b'.');
        let (whole, fraction) = match point {
            Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
            None => (mantissa, &[][..]),
        };
        let digits = [whole, fraction].concat();
        if digits.is_empty() || !digits.iter().all(|byte| char::from(*byte).is_digit(radix.into())) {
            return None;
        }
        let power = exponent.saturating_sub(fraction.len() as i64 * bits_per_digit);
        Some(Self { digits: BigUint::parse_bytes(&digits, radix.into())?, power })
    }
}

/// Parses decimal digits with or without sign; the value saturates.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [sign @ (b'+' | b'-'), rest @ ..] => (*sign == b'-', rest),
        unsigned => (false, unsigned),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let ten_times = |sum: i64, digit: &u8| sum.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
    let magnitude = digits.iter().fold(0, ten_times);
    Some(if negative { -magnitude } else { magnitude })
}

fn ten_to(power: i64) -> BigUint {
    BigUint::from(10u8).pow(u32::try_from(power).expect("a small power"))
}

/// The quotient rounded to the nearest integer, ties to even.
fn rounded_quotient(numerator: &BigUint, denominator: &BigUint) -> BigUint {
    let quotient = numerator / denominator;
    let rest = numerator - &quotient * denominator;
    let up = match (rest * 2u8).cmp(denominator) {
        Ordering::Less => false,
        Ordering::Equal => quotient.bit(0),
        Ordering::Greater => true,
    };
    if up { quotient + 1u8 } else { quotient }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> LongDouble {
        LongDouble::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text:?} is a number"))
    }

    fn of(negative: bool, exponent: u16, significand: u64) -> LongDouble {
        LongDouble::from_parts(negative, exponent, significand).unwrap()
    }

    /// The expected texts are the results of redis-server 7.0.15 on x86-64 for INCRBYFLOAT of a new
    /// key.
    #[test]
    fn numbers_are_written_as_by_redis() {
        for (text, written) in [
            ("0", "0"),
            ("-0", "0"),
            ("-1e-30", "0"),
            ("1e-4950", "0"),
            ("0e99999999999999999999", "0"),
            ("+5", "5"),
            ("1.", "1"),
            (".5", "0.5"),
            ("1e3", "1000"),
            ("0x10", "16"),
            ("0X1P4", "16"),
            ("0x1.8p3", "12"),
            ("0x.8", "0.5"),
            ("0.1", "0.1"),
            ("3.14159265358979323846", "3.14159265358979324"),
            ("1e21", "1000000000000000000000"),
            ("1e22", "10000000000000000000000"),
            ("1e30", "1000000000000000000024696061952"),
            ("18446744073709551615", "18446744073709551615"),
            ("18446744073709551617", "18446744073709551616"),
            ("123456789.123456789", "123456789.12345678899873747"),
            ("-2.5e-17", "-0.00000000000000002"),
        ] {
            assert_eq!(read(text).to_text(), written, "{text}");
        }
    }

    #[test]
    fn texts_refused_by_redis_are_no_numbers() {
        for text in [
            "",
            ".",
            "+",
            "-",
            "+-5",
            " 1",
            "1 ",
            "\t1",
            "1_0",
            "1,5",
            "abc",
            "1e",
            "1e+",
            "e5",
            "0x",
            "0x.",
            "0x1p",
            "0x1pf",
            "0xg",
            "1e5000",
            "-1e5000",
            "1e-5000",
            "1e99999999999999999999",
            "0x1p16384",
            "0x1p-17000",
            "nan",
            "-nan",
            "nan(1)",
            "infin",
            "infinit",
            "1\0",
            "\u{0663}",
        ] {
            assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text:?}");
        }
        let digits = |count| alloc::vec![b'0'; count];
        assert_eq!(LongDouble::parse(&digits(TEXT_BYTES_MAX)), None);
        assert_eq!(LongDouble::parse(&digits(TEXT_BYTES_MAX - 1)), Some(zero()));
    }

    #[test]
    fn sums_are_rounded_once() {
        for (a, b, sum) in [
            ("0.1", "0.2", "0.3"),
            ("5.0e3", "200", "5200"),
            ("1e15", "4", "1000000000000004"),
            ("9007199254740993", "0.5", "9007199254740993.5"),
            ("1e30", "1", "1000000000000000000024696061952"),
            // The exact sums of the next three rows have more than 64 bits. The last two lie halfway
            // between two numbers and are rounded to the even one.
            ("18446744073709551615", "1.5", "18446744073709551616"),
            ("36893488147419103232", "2", "36893488147419103232"),
            ("36893488147419103232", "6", "36893488147419103240"),
            ("-3", "3", "0"),
            ("1e4000", "-1e4000", "0"),
        ] {
            assert_eq!(read(a).checked_add(read(b)).unwrap().to_text(), sum, "{a} + {b}");
        }
    }

    #[test]
    fn range_limits_match_the_format() {
        let largest = read("1.18973149535723176502e4932");
        assert_eq!(largest, of(false, 0x7ffe, u64::MAX));
        assert_eq!(largest.checked_add(largest), None);
        assert_eq!(largest.checked_add(read("1")), Some(largest));
        let smallest = of(true, 0, 1);
        assert_eq!(read("-3.6451995318824746025e-4951"), smallest);
        // Half of the smallest number is a tie and is rounded to 0; a little more is rounded up.
        assert_eq!(LongDouble::parse(b"0x1p-16446"), None);
        assert_eq!(read("-0x1.000001p-16446"), smallest);
        // The largest number with exponent 0; half a unit more is rounded up to the next number,
        // the smallest with exponent 1.
        assert_eq!(read("0x0.fffffffffffffffep-16382").parts().2, LongDouble::HIGHEST_BIT - 1);
        let normal = of(false, 1, LongDouble::HIGHEST_BIT);
        assert_eq!(read("0x0.ffffffffffffffffp-16382"), normal);
    }

    #[test]
    fn infinities_are_parsed_but_never_added() {
        for text in ["inf", "+INF", "-Infinity"] {
            assert!(!read(text).is_finite());
            assert_eq!(read(text).checked_add(read("1")), None);
            assert_eq!(read("1").checked_add(read(text)), None);
        }
        assert_eq!(read("inf").checked_add(read("-inf")), None);
        assert_eq!(read("-inf").to_text(), "-inf");
    }

    #[test]
    fn float_converts_by_its_shortest_text() {
        for (value, text) in [(0.1, "0.1"), (-2.5, "-2.5"), (1e300, "1e300"), (5e-324, "5e-324"), (-0.0, "0")]
        {
            assert_eq!(LongDouble::from_f64(value), Some(read(text)));
        }
        assert_eq!(LongDouble::from_f64(f64::NEG_INFINITY), Some(read("-inf")));
        assert_eq!(LongDouble::from_f64(f64::NAN), None);
    }

    #[test]
    fn numbers_have_the_parts_of_the_format() {
        assert_eq!(read("1"), of(false, 0x3fff, LongDouble::HIGHEST_BIT));
        assert_eq!(read("-inf"), of(true, 0x7fff, LongDouble::HIGHEST_BIT));
    }

    proptest! {
        /// Compares with the processor's `f64` arithmetic.
        #[test]
        fn sums_of_floats_agree_with_the_processor(a in -1e15f64..1e15, b in -1e15f64..1e15) {
            let sum = read(&format!("{a}")).checked_add(read(&format!("{b}"))).unwrap();
            let written: f64 = sum.to_text().parse().unwrap();
            // Each number is parsed from an `f64`'s shortest text, which may differ from the `f64`
            // by half a unit in its last place; the same is true of the written sum.
            prop_assert!((written - (a + b)).abs() <= f64::EPSILON * (a.abs() + b.abs()));
        }

        #[test]
        fn every_number_has_a_text(head in 0u16..0x7fff, significand in any::<u64>()) {
            if let Some(value) = LongDouble::from_parts(head & 1 == 1, head, significand) {
                prop_assert!(value.to_text().parse::<f64>().is_ok());
            }
        }

        #[test]
        fn random_text_is_refused_or_round_trips(text in "[-+]?[0-9a-fA-FxXpP.]{0,12}(e[-+]?[0-9]{1,5})?") {
            if let Some(value) = LongDouble::parse(text.as_bytes()) {
                let written = value.to_text();
                prop_assert_eq!(read(&written).to_text(), written);
            }
        }
    }
}
