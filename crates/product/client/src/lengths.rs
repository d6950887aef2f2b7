//! How long gets are made, so that the kernel of a node may answer them (G8): as long as the longest reply of late.

/// Replies after which a longer one is forgotten.
const REPLIES: u16 = 256;

/// Of the gets of a keyspace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GetLength {
    bytes: u16,
    /// Since the last count of [`REPLIES`] began.
    longest: u16,
    replies: u16,
}

impl GetLength {
    /// With zeros at the end they have so many bytes at least.
    pub(crate) fn bytes(self) -> usize {
        self.bytes.into()
    }

    /// A get was answered; `useful`: the length of the reply if a kernel may give it, or has.
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
    fn gets_are_as_long_as_the_longest_reply_of_late() {
        let mut length = GetLength::default();
        length.answered(0);
        assert_eq!(length.bytes(), 0);
        length.answered(300);
        (0..300).for_each(|_| length.answered(120));
        assert_eq!(length.bytes(), 300, "a count later");
        (0..300).for_each(|_| length.answered(120));
        assert_eq!(length.bytes(), 120);
        (0..600).for_each(|_| length.answered(0));
        assert_eq!(length.bytes(), 0, "no kernel answers any more");
        length.answered(i64::MAX);
        assert_eq!(length.bytes(), 0, "nobody answers so much");
    }
}
