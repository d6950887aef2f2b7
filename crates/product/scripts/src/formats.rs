//! Steps charged for `string.format`, which computes the digits of long numbers and copies text.

use crate::meter::Meter;
use mlua::{Result, Value};

/// Bytes of a format or text that cost one step.
const BYTES_PER_STEP: usize = 8;
/// Digits of a number that cost one step; computing a digit takes a pass over those before it.
const DIGITS_PER_STEP: f64 = 2.0;
/// Steps for each formatted value.
const VALUE_STEPS: u64 = 10;

/// Charges the steps of a format with these values.
pub(crate) fn charge(words: &[Value], meter: &Meter) -> Result<()> {
    let steps = words.iter().map(|word| match word {
        Value::String(text) => VALUE_STEPS + (text.as_bytes().len() / BYTES_PER_STEP) as u64,
        Value::Number(number) => VALUE_STEPS + number_steps(*number),
        _ => VALUE_STEPS,
    });
    let steps = steps.sum();
    // A precision is at most 99; each is charged like a number of that many digits.
    let Some(Value::String(format)) = words.first() else { return meter.charge(steps) };
    let precisions = format.as_bytes().iter().filter(|byte| **byte == b'.').count() as u64;
    meter.charge(steps + precisions * number_steps(1e99))
}

/// Steps for a number, by its digits before and after the decimal point.
fn number_steps(number: f64) -> u64 {
    let digits = if number.is_finite() { number.abs().max(1.0).log10() } else { 0.0 };
    (digits / DIGITS_PER_STEP) as u64
}
