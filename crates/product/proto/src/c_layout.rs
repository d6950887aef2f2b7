//! Layouts that C programs share: each is declared once, and the C header is generated from it.

/// A layout that programs in C know, too: its fields are declared once for both.
macro_rules! layout_for_c {
    ($(#[$meta:meta])* $visible:vis struct $name:ident { $($(#[$field_meta:meta])* $field_visible:vis $field:ident: $type:tt,)* }) => {
        $(#[$meta])*
        $visible struct $name {
            $($(#[$field_meta])* $field_visible $field: $type,)*
        }

        impl $name {
            /// Type, name, number of elements, and offset of each field.
            pub(crate) const FIELDS: &[(&str, &str, &str, usize)] =
                &[$({
                    let (c_type, elements) = c_type!($type);
                    (c_type, stringify!($field), elements, offset_of!($name, $field))
                },)*];
        }
    };
}

macro_rules! c_type {
    (u8) => {
        ("__u8", "")
    };
    (U16) => {
        ("__be16", "")
    };
    (U32) => {
        ("__be32", "")
    };
    (U64) => {
        ("__be64", "")
    };
    ([u8; $count:literal]) => {
        ("__u8", concat!("[", $count, "]"))
    };
}

pub(crate) use {c_type, layout_for_c};
