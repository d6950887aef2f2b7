//! How long gets are padded, so that the kernel of a node can answer them in place (G8): as long as the longest recent
//! reply.

/// A longer reply counts until this many replies came after it.
const REPLIES: u16 = 256;

/// The padded length of gets in a keyspace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GetLength {
    bytes: u16,
    /// The longest in the present count of [`REPLIES`].
    longest: u16,
    replies: u16,
}

impl GetLength {
    /// Gets are padded with zeros to this many bytes.
    pub(crate) fn bytes(self) -> usize {
        self.bytes.into()
    }

    /// A get was answered; `useful` is the length of the reply if a kernel can give it.
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
        assert_eq!(length.bytes(), 300, "a count later");
        (0..300).for_each(|_| length.answered(120));
        assert_eq!(length.bytes(), 120);
        (0..600).for_each(|_| length.answered(0));
        assert_eq!(length.bytes(), 0, "kernels answer no more gets");
        length.answered(i64::MAX);
        assert_eq!(length.bytes(), 0, "no reply is that long");
    }
}
