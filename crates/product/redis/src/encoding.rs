//! The encoding that Redis 7.0 would use for a value, for OBJECT ENCODING.

use nicekv_proto::Form;
use nicekv_proto::hash::Field;
use nicekv_proto::number::parse_integer;

/// `hash-max-listpack-entries` and `hash-max-listpack-value`: larger hashes are hash tables.
const LISTPACK_FIELDS_MAX: usize = 512;
const LISTPACK_ITEM_BYTES_MAX: usize = 64;
/// Redis does not embed longer strings in their object.
const EMBEDDED_BYTES_MAX: usize = 44;
/// Redis has shared objects for the integers below this one.
const SHARED_INTEGERS: i64 = 10_000;

/// Whether Redis would encode a hash with these fields as a listpack.
pub(crate) fn is_listpack(fields: &[u8]) -> bool {
    let is_short = |field: &Field<'_>| field.name.len().max(field.value.len()) <= LISTPACK_ITEM_BYTES_MAX;
    Field::each(fields).all(|field| is_short(&field)) && Field::each(fields).count() <= LISTPACK_FIELDS_MAX
}

/// Redis' name of the encoding.
pub(crate) fn name(value: &[u8], form: Form) -> &'static str {
    match form {
        Form::Hash if is_listpack(value) => "listpack",
        Form::Hash => "hashtable",
        _ if parse_integer(value).is_some() => "int",
        _ if value.len() <= EMBEDDED_BYTES_MAX => "embstr",
        _ => "raw",
    }
}

/// The reference count of Redis' object, for OBJECT REFCOUNT.
pub(crate) fn references(value: &[u8], form: Form) -> i64 {
    let number = if form == Form::Hash { None } else { parse_integer(value) };
    if number.is_some_and(|number| (0..SHARED_INTEGERS).contains(&number)) { i32::MAX.into() } else { 1 }
}
