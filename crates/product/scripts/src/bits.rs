//! `bit.*`: 32-bit operations, as in LuaJIT.

use mlua::{Lua, Result, Table, Variadic};

/// Rounds a number and returns its lowest 32 bits.
fn bits(number: f64) -> u32 {
    // Adding this constant moves the integer bits to the end of the mantissa.
    (number + 6_755_399_441_055_744.0).to_bits() as u32
}

fn signed(bits: u32) -> f64 {
    f64::from(bits as i32)
}

/// The table of functions.
pub(crate) fn table(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    table.set("tobit", lua.create_function(|_, number: f64| Ok(signed(bits(number))))?)?;
    table.set("bnot", lua.create_function(|_, number: f64| Ok(signed(!bits(number))))?)?;
    table.set("bswap", lua.create_function(|_, number: f64| Ok(signed(bits(number).swap_bytes())))?)?;
    type Both = fn(u32, u32) -> u32;
    let folded: [(&str, Both); 3] = [("band", |a, b| a & b), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)];
    for (name, both) in folded {
        let fold = move |_: &Lua, (first, rest): (f64, Variadic<f64>)| {
            Ok(signed(rest.iter().fold(bits(first), |sum, number| both(sum, bits(*number)))))
        };
        table.set(name, lua.create_function(fold)?)?;
    }
    let shifted: [(&str, Both); 5] = [
        ("lshift", |value, by| value << by),
        ("rshift", |value, by| value >> by),
        ("arshift", |value, by| (value as i32 >> by) as u32),
        ("rol", u32::rotate_left),
        ("ror", u32::rotate_right),
    ];
    for (name, shift) in shifted {
        let by = move |_: &Lua, (value, by): (f64, f64)| Ok(signed(shift(bits(value), bits(by) & 31)));
        table.set(name, lua.create_function(by)?)?;
    }
    let hex = |_: &Lua, (value, digits): (f64, Option<f64>)| {
        let digits = digits.map_or(8, |digits| bits(digits) as i32);
        let text = format!("{:08x}", bits(value));
        let text = text[8 - (digits.unsigned_abs() as usize).min(8)..].to_owned();
        Ok(if digits < 0 { text.to_ascii_uppercase() } else { text })
    };
    table.set("tohex", lua.create_function(hex)?)?;
    Ok(table)
}
