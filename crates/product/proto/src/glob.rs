//! Glob patterns as in Redis (`stringmatchlen`): `*`, `?`, `[abc]`, `[^a-z]`, and `\` to escape.

/// Whether a character class contains a byte, and the pattern behind the class. `class` begins
/// after the opening bracket and extends to the end if it is not closed.
///
/// As in Redis, an escaped byte begins no range, and any byte after `-` ends one, even a closing
/// bracket.
fn class(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let is_negated = pattern.first() == Some(&b'^');
    let mut left = &pattern[usize::from(is_negated)..];
    let mut has = false;
    loop {
        let (is_member, behind) = match *left {
            [] => return (has != is_negated, left),
            [b'\\', one, ref behind @ ..] => (one == byte, behind),
            [b']', ref behind @ ..] => return (has != is_negated, behind),
            [one, b'-', other, ref behind @ ..] => {
                ((one.min(other)..=one.max(other)).contains(&byte), behind)
            }
            [one, ref behind @ ..] => (one == byte, behind),
        };
        has |= is_member;
        left = behind;
    }
}

/// The pattern behind its first element, which is not `*`, if that element matches the byte.
fn behind_first(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    let (matches, behind) = match *pattern {
        [] => return None,
        [b'?', ref behind @ ..] => (true, behind),
        [b'[', ref behind @ ..] => class(behind, byte),
        [b'\\', one, ref behind @ ..] | [one, ref behind @ ..] => (one == byte, behind),
    };
    matches.then_some(behind)
}

/// Whether the pattern matches the name. Runs in time proportional to the product of the lengths.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut left, mut rest) = (pattern, name);
    // Pattern behind the last star, and the part of the name that this star does not cover yet.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', behind @ ..] = left {
            star = Some((behind, rest));
            left = behind;
            continue;
        }
        let Some((byte, others)) = rest.split_first() else { return left.is_empty() };
        // Mismatch: the last star covers one more byte.
        (left, rest) = match (behind_first(left, *byte), star) {
            (Some(behind), _) => (behind, others),
            (None, Some((behind, [_, others @ ..]))) => {
                star = Some((behind, others));
                (behind, others)
            }
            (None, _) => return false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, name, expected) in [
            ("save", "save", true),
            ("SAVE", "save", false),
            ("s?ve", "save", true),
            ("*", "save", true),
            ("*", "", true),
            ("*a*e", "save", true),
            ("sav", "save", false),
            ("save?", "save", false),
            ("*x", "save", false),
            ("", "save", false),
            ("", "", true),
            ("h[ae]llo", "hello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h[a-b]llo", "hcllo", false),
            ("h[a-]llo", "h-llo", false),
            ("h[a-]llo", "h_", true),
            ("h[a-]llo]o", "h_o", true),
            ("hell[\\n-p]", "hello", false),
            ("hell[\\n-p]", "hell-", true),
            ("[]a", "a", false),
            ("[^]a", "xa", true),
            ("[^", "x", true),
            ("[a\\", "\\", true),
            ("h\\?llo", "h?llo", true),
            ("h\\?llo", "hallo", false),
            ("[\\]]", "]", true),
            ("[\\-a]x", "-x", true),
            ("[", "[", false),
            ("a[", "ab", false),
            ("\\", "\\", true),
            ("user:*:name", "user:17:name", true),
            ("user:*:name", "user:17:names", false),
            ("**a**", "bab", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_take_quadratic_time_at_most() {
        let (pattern, name) = (b"a*".repeat(100), b"a".repeat(16_384));
        assert!(matches(&pattern, &name));
        assert!(!matches(&[&pattern[..], b"b"].concat(), &name));
    }
}
