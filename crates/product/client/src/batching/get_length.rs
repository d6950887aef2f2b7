//! How long gets are padded: as long as the longest recent reply, so that a node's kernel can
//! answer in the same buffer (G8).

/// A long reply is forgotten after this many replies.
const REPLIES: u16 = 256;

/// The padded length of gets in a keyspace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GetLength {
    bytes: u16,
    /// The longest reply among the current [`REPLIES`].
    longest: u16,
    replies: u16,
}

impl GetLength {
    /// The length to which gets are padded with zeros.
    pub(crate) fn bytes(self) -> usize {
        self.bytes.into()
    }

    /// A get was answered. `useful`: the length of the reply, if a kernel can give it.
    pub(crate) fn answered(&mut self, useful: i64) {
        self.longest = self.longest.max(u16::try_from(useful).unwrap_or_default());
        self.bytes = self.bytes.max(self.longest);
        self.replies += 1;
        if self.replies == REPLIES {
            *self = Self { bytes: self.longest, ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gets_are_as_long_as_the_longest_recent_reply() {
        let mut length = GetLength::default();
        length.answered(0);
        assert_eq!(length.bytes(), 0);
        length.answered(300);
        (0..300).for_each(|_| length.answered(120));
        assert_eq!(length.bytes(), 300, "256 replies later");
        (0..300).for_each(|_| length.answered(120));
        assert_eq!(length.bytes(), 120);
        (0..600).for_each(|_| length.answered(0));
        assert_eq!(length.bytes(), 0, "kernels answer no more gets");
        length.answered(i64::MAX);
        assert_eq!(length.bytes(), 0, "no reply is that long");
    }
}
