//! Match fields: the OpenFlow extensible match (OpenFlow 1.3.5 §7.2.2).

use alloc::vec::Vec;

use super::DecodeError;
use super::bytes::{Reader, Write};

/// The class of the fields that OpenFlow itself defines.
const CLASS_BASIC: u16 = 0x8000;
/// The type of a match that consists of extensible fields.
const MATCH_OXM: u16 = 1;
/// `vlan_vid` of a frame without a tag.
pub const VLAN_NONE: u64 = 0;

/// Generates the fields from their numbers and widths.
macro_rules! fields {
    ($($(#[$doc:meta])* $field:ident = $number:literal, $bytes:literal;)*) => {
        /// A field of a packet, or of its way through the switch.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Field {
            $($(#[$doc])* $field = $number,)*
        }

        impl Field {
            /// Every field, in the order in which they are written.
            pub const ALL: &[Self] = &[$(Self::$field),*];

            /// Size of a value in bytes.
            pub const fn bytes(self) -> usize {
                match self { $(Self::$field => $bytes,)* }
            }
        }
    };
}

fields! {
    /// The port by which the packet arrived.
    InPort = 0, 4;
    /// 64 bits that one table passes to the next.
    Metadata = 2, 8;
    EthDst = 3, 6;
    EthSrc = 4, 6;
    EthType = 5, 2;
    /// VLAN id with a flag for its presence; [`VLAN_NONE`]: no tag.
    VlanVid = 6, 2;
    IpProto = 10, 1;
    Ipv4Src = 11, 4;
    Ipv4Dst = 12, 4;
    UdpSrc = 15, 2;
    UdpDst = 16, 2;
    ArpOp = 21, 2;
    /// The sender's IPv4 address.
    ArpSpa = 22, 4;
    /// The target's IPv4 address.
    ArpTpa = 23, 4;
    /// The sender's Ethernet address.
    ArpSha = 24, 6;
}

impl Field {
    fn of(number: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|field| *field as u8 == number)
    }

    /// The largest value, which is also the mask of an exact match.
    pub const fn all_bits(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes())
    }

    fn read(self, reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
        let mut value = [0; 8];
        value[8 - self.bytes()..].copy_from_slice(reader.take(self.bytes())?);
        Ok(u64::from_be_bytes(value))
    }

    fn write(self, out: &mut Vec<u8>, value: u64) {
        out.bytes(&value.to_be_bytes()[8 - self.bytes()..]);
    }

    /// Writes the field with a value, for a match or for an action that sets it.
    pub(super) fn write_value(self, out: &mut Vec<u8>, value: u64) {
        self.write_header(out, false);
        self.write(out, value);
    }

    fn write_header(self, out: &mut Vec<u8>, has_mask: bool) {
        out.u16(CLASS_BASIC);
        out.u8((self as u8) << 1 | u8::from(has_mask));
        out.u8((self.bytes() << usize::from(has_mask)) as u8);
    }
}

/// The condition on one field: its bits under the mask equal those of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldMatch {
    pub field: Field,
    /// Bits outside of the mask are zero.
    pub value: u64,
    /// At most [`Field::all_bits`], which means an exact match.
    pub mask: u64,
}

/// The conditions of a flow, in ascending order of fields, each field at most once. Every packet
/// matches an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Match {
    fields: Vec<FieldMatch>,
    /// Number of conditions, in a decoded match, on fields that are not in [`Field`]. Nothing that
    /// this crate encodes has any.
    others: u16,
}

impl Match {
    /// Adds the condition that a field has this value.
    ///
    /// # Panics
    /// If the field has a condition already, or the value does not fit.
    #[must_use]
    pub fn with(self, field: Field, value: impl Into<u64>) -> Self {
        self.masked(field, value, field.all_bits())
    }

    /// Adds the condition that the bits of a field under the mask equal those of a value. A mask of
    /// zero is no condition.
    ///
    /// # Panics
    /// As [`Self::with`].
    #[must_use]
    pub fn masked(mut self, field: Field, value: impl Into<u64>, mask: u64) -> Self {
        let value = value.into();
        assert!(
            value <= field.all_bits() && mask <= field.all_bits(),
            "{field:?} has no such value: {value:#x}"
        );
        if mask != 0 {
            let is_new = self.insert(FieldMatch { field, value: value & mask, mask });
            assert!(is_new, "{field:?} has two conditions");
        }
        self
    }

    fn insert(&mut self, field: FieldMatch) -> bool {
        match self.fields.binary_search_by_key(&field.field, |field| field.field) {
            Ok(_) => false,
            Err(at) => {
                self.fields.insert(at, field);
                true
            }
        }
    }

    /// The conditions, in ascending order of fields.
    pub fn fields(&self) -> &[FieldMatch] {
        &self.fields
    }

    /// The condition on one field.
    pub fn get(&self, field: Field) -> Option<FieldMatch> {
        self.fields.binary_search_by_key(&field, |field| field.field).ok().map(|at| self.fields[at])
    }

    /// Whether the switch reported conditions on fields that are unknown here.
    pub fn has_others(&self) -> bool {
        self.others > 0
    }

    /// Whether a packet with these values of fields matches. `value`: of a field, if the packet has
    /// it.
    pub fn covers(&self, value: impl Fn(Field) -> Option<u64>) -> bool {
        let holds = |field: &FieldMatch| value(field.field).is_some_and(|v| v & field.mask == field.value);
        !self.has_others() && self.fields.iter().all(holds)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(MATCH_OXM);
        out.u16(0);
        for FieldMatch { field, value, mask } in &self.fields {
            let has_mask = *mask != field.all_bits();
            field.write_header(out, has_mask);
            field.write(out, *value);
            if has_mask {
                field.write(out, *mask);
            }
        }
        out.set_length(start + 2, start);
        out.pad_since(start);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let before = reader.remaining();
        let (kind, mut fields) = reader.typed_part("match")?;
        if kind != MATCH_OXM {
            return Err(DecodeError::Unknown { what: "match", value: kind.into() });
        }
        let mut matches = Self::default();
        while !fields.is_empty() {
            match decode_field(&mut fields)? {
                Some(field) if matches.insert(field) => {}
                Some(_) => return Err(DecodeError::Repeated("match field")),
                None => matches.others = matches.others.saturating_add(1),
            }
        }
        reader.skip_padding_since(before)?;
        Ok(matches)
    }
}

/// The condition on a field; `None`: the field is unknown here.
pub(super) fn decode_field(reader: &mut Reader<'_>) -> Result<Option<FieldMatch>, DecodeError> {
    let (class, number, bytes) = (reader.u16()?, reader.u8()?, reader.u8()?);
    let mut body = reader.part("match field", bytes.into())?;
    let Some(field) = Field::of(number >> 1).filter(|_| class == CLASS_BASIC) else { return Ok(None) };
    let value = field.read(&mut body)?;
    let mask = if number & 1 == 1 { field.read(&mut body)? } else { field.all_bits() };
    body.end()?;
    if value & !mask != 0 {
        return Err(DecodeError::Unknown { what: "match field's value outside of its mask", value });
    }
    Ok(Some(FieldMatch { field, value, mask }))
}
