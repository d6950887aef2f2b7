//! Patterns as in Redis: `*`, `?`, `[abc]`, `[^a-z]`, and `\` before what means itself.

/// One element of a pattern.
enum Element<'a> {
    Many,
    Any,
    Byte(u8),
    Class { negated: bool, members: &'a [u8] },
}

/// The first element of a pattern, and what is behind it.
fn first(pattern: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (byte, rest) = pattern.split_first()?;
    Some(match (byte, rest) {
        (b'*', rest) => (Element::Many, rest),
        (b'?', rest) => (Element::Any, rest),
        (b'\\', [escaped, rest @ ..]) => (Element::Byte(*escaped), rest),
        (b'[', rest) => class(rest),
        (byte, rest) => (Element::Byte(*byte), rest),
    })
}

/// What is behind an opening bracket; without a closing one, a class goes to the end.
fn class(pattern: &[u8]) -> (Element<'_>, &[u8]) {
    let negated = pattern.first() == Some(&b'^');
    let pattern = &pattern[usize::from(negated)..];
    let mut at = 0;
    while at < pattern.len() && pattern[at] != b']' {
        at += if pattern[at] == b'\\' { 2 } else { 1 };
    }
    let at = at.min(pattern.len());
    (Element::Class { negated, members: &pattern[..at] }, pattern.get(at + 1..).unwrap_or_default())
}

fn is_member(mut members: &[u8], byte: u8) -> bool {
    loop {
        members = match *members {
            [b'\\', one, ref rest @ ..] | [one, ref rest @ ..]
                if rest.first() != Some(&b'-') || rest.len() < 2 =>
            {
                if one == byte {
                    return true;
                }
                rest
            }
            [one, b'-', other, ref rest @ ..] => {
                if (one.min(other)..=one.max(other)).contains(&byte) {
                    return true;
                }
                rest
            }
            _ => return false,
        };
    }
}

/// Whether a name is one of the pattern's. Linear in the product of the lengths.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut left, mut rest) = (pattern, name);
    // Behind the last star, and what it has left of the name.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        let step = match (first(left), rest.split_first()) {
            (Some((Element::Many, behind)), _) => {
                star = Some((behind, rest));
                left = behind;
                continue;
            }
            (None, None) => return true,
            (Some((Element::Any, behind)), Some((_, others))) => Some((behind, others)),
            (Some((Element::Byte(wanted), behind)), Some((byte, others))) if wanted == *byte => {
                Some((behind, others))
            }
            (Some((Element::Class { negated, members }, behind)), Some((byte, others)))
                if is_member(members, *byte) != negated =>
            {
                Some((behind, others))
            }
            _ => None,
        };
        // What does not fit has the last star take one byte more.
        (left, rest) = match (step, star) {
            (Some(next), _) => next,
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
            ("h[a-]llo", "h-llo", true),
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
    fn a_pattern_of_stars_takes_no_more_than_the_product_of_the_lengths() {
        let (pattern, name) = (b"a*".repeat(100), b"a".repeat(16_384));
        assert!(matches(&pattern, &name));
        assert!(!matches(&[&pattern[..], b"b"].concat(), &name));
    }
}
