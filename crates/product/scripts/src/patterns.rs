//! Patterns of Lua 5.1 (`%a+`, `(.-)=`, `%b()`, `%f[%w]`). Matching backtracks, so even a short
//! pattern may take exponential time; therefore each attempt is counted.

use crate::meter::Meter;
use mlua::{Error, Result};

/// Maximum captures, and maximum depth of recursion.
const CAPTURES_MAX: usize = 32;
const DEPTH_MAX: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Open,
    Position,
    Closed(usize),
}

/// The value of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Captured<'a> {
    Text(&'a [u8]),
    /// A position in the text, counted from 1.
    Position(usize),
}

/// A match: its position and its captures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) captures: Vec<Captured<'a>>,
}

struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<(usize, Length)>,
    depth: usize,
    meter: &'a Meter,
}

/// The first match that begins at `from` or later; an anchored pattern matches only at `from`.
pub(crate) fn search<'a>(
    text: &'a [u8],
    pattern: &'a [u8],
    from: usize,
    meter: &'a Meter,
) -> Result<Option<Found<'a>>> {
    let (is_anchored, pattern) = match pattern.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let mut matcher = Matcher { text, pattern, captures: Vec::new(), depth: 0, meter };
    for start in from..=text.len() {
        matcher.captures.clear();
        if let Some(end) = matcher.matches(start, 0)? {
            let captures = matcher.captured()?;
            return Ok(Some(Found { start, end, captures }));
        }
        if is_anchored {
            break;
        }
    }
    Ok(None)
}

fn malformed(what: &str) -> Error {
    Error::runtime(format!("malformed pattern ({what})"))
}

impl<'a> Matcher<'a> {
    fn captured(&self) -> Result<Vec<Captured<'a>>> {
        let of = |&(start, length): &(usize, Length)| match length {
            Length::Open => Err(Error::runtime("unfinished capture")),
            Length::Position => Ok(Captured::Position(start + 1)),
            Length::Closed(length) => Ok(Captured::Text(&self.text[start..start + length])),
        };
        self.captures.iter().map(of).collect()
    }

    /// Matches the pattern from position `at` on against the text from `from` on. Returns the end
    /// of the match.
    fn matches(&mut self, from: usize, at: usize) -> Result<Option<usize>> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Error::runtime("pattern too complex"));
        }
        let found = self.matches_here(from, at);
        self.depth -= 1;
        found
    }

    fn matches_here(&mut self, mut from: usize, mut at: usize) -> Result<Option<usize>> {
        loop {
            self.meter.charge(1)?;
            let Some(&first) = self.pattern.get(at) else { return Ok(Some(from)) };
            let second = self.pattern.get(at + 1).copied();
            match (first, second) {
                (b'(', Some(b')')) => return self.open(from, at + 2, Length::Position),
                (b'(', _) => return self.open(from, at + 1, Length::Open),
                (b')', _) => return self.close(from, at + 1),
                (b'$', None) => return Ok((from == self.text.len()).then_some(from)),
                (b'%', Some(b'b')) => match self.balance(from, at + 2)? {
                    Some(end) => (from, at) = (end, at + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => match self.frontier(from, at + 2)? {
                    Some(behind) => at = behind,
                    None => return Ok(None),
                },
                (b'%', Some(digit @ b'0'..=b'9')) => match self.again(from, digit)? {
                    Some(end) => (from, at) = (end, at + 2),
                    None => return Ok(None),
                },
                _ => {
                    let behind = self.class_end(at)?;
                    match self.pattern.get(behind) {
                        Some(b'?') => {
                            if self.is_one(from, at, behind)
                                && let Some(end) = self.matches(from + 1, behind + 1)?
                            {
                                return Ok(Some(end));
                            }
                            at = behind + 1;
                        }
                        Some(b'*') => return self.most(from, at, behind, 0),
                        Some(b'+') => return self.most(from, at, behind, 1),
                        Some(b'-') => return self.fewest(from, at, behind),
                        _ if self.is_one(from, at, behind) => (from, at) = (from + 1, behind),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    fn open(&mut self, from: usize, at: usize, length: Length) -> Result<Option<usize>> {
        if self.captures.len() == CAPTURES_MAX {
            return Err(Error::runtime("too many captures"));
        }
        let before = self.captures.len();
        self.captures.push((from, length));
        let found = self.matches(from, at)?;
        if found.is_none() {
            self.captures.truncate(before);
        }
        Ok(found)
    }

    fn close(&mut self, from: usize, at: usize) -> Result<Option<usize>> {
        let open = self.captures.iter().rposition(|(_, length)| *length == Length::Open);
        let open = open.ok_or_else(|| Error::runtime("invalid pattern capture"))?;
        self.captures[open].1 = Length::Closed(from - self.captures[open].0);
        let found = self.matches(from, at)?;
        if found.is_none() {
            self.captures[open].1 = Length::Open;
        }
        Ok(found)
    }

    /// `%bxy`: balanced delimiters.
    fn balance(&mut self, from: usize, at: usize) -> Result<Option<usize>> {
        let [opening, closing] = match self.pattern.get(at..at + 2) {
            Some(pair) => [pair[0], pair[1]],
            None => return Err(Error::runtime("unbalanced pattern")),
        };
        if self.text.get(from) != Some(&opening) {
            return Ok(None);
        }
        let mut depth = 1;
        for (place, byte) in self.text.iter().enumerate().skip(from + 1) {
            self.meter.charge(1)?;
            if *byte == closing {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(place + 1));
                }
            } else if *byte == opening {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// `%f[set]`: matches between a byte that is not in the set and one that is. Returns where the
    /// pattern continues.
    fn frontier(&mut self, from: usize, at: usize) -> Result<Option<usize>> {
        if self.pattern.get(at) != Some(&b'[') {
            return Err(Error::runtime("missing '[' after '%f' in pattern"));
        }
        let behind = self.class_end(at)?;
        let before = from.checked_sub(1).map_or(0, |before| self.text[before]);
        let here = self.text.get(from).copied().unwrap_or(0);
        let is_there = !self.is_in_set(before, at, behind) && self.is_in_set(here, at, behind);
        Ok(is_there.then_some(behind))
    }

    /// `%1`: the text of an earlier capture.
    fn again(&mut self, from: usize, digit: u8) -> Result<Option<usize>> {
        let capture = usize::from(digit).checked_sub(usize::from(b'1'));
        let Some((start, Length::Closed(length))) = capture.and_then(|place| self.captures.get(place)) else {
            return Err(Error::runtime("invalid capture index"));
        };
        self.meter.charge(*length as u64 / 16)?;
        let captured = &self.text[*start..start + length];
        Ok(self.text[from..].starts_with(captured).then_some(from + length))
    }

    /// `*` and `+`: repeats the class as often as possible.
    fn most(&mut self, from: usize, at: usize, behind: usize, least: usize) -> Result<Option<usize>> {
        let mut count = 0;
        while self.is_one(from + count, at, behind) {
            self.meter.charge(1)?;
            count += 1;
        }
        while count >= least {
            if let Some(end) = self.matches(from + count, behind + 1)? {
                return Ok(Some(end));
            }
            if count == 0 {
                break;
            }
            count -= 1;
        }
        Ok(None)
    }

    /// `-`: repeats the class as few times as possible.
    fn fewest(&mut self, mut from: usize, at: usize, behind: usize) -> Result<Option<usize>> {
        loop {
            if let Some(end) = self.matches(from, behind + 1)? {
                return Ok(Some(end));
            }
            if !self.is_one(from, at, behind) {
                return Ok(None);
            }
            from += 1;
        }
    }

    /// The end of the character class that begins at `at`.
    fn class_end(&self, at: usize) -> Result<usize> {
        match self.pattern[at] {
            b'%' if at + 1 == self.pattern.len() => Err(malformed("ends with '%'")),
            b'%' => Ok(at + 2),
            b'[' => {
                let mut place = at + 1 + usize::from(self.pattern.get(at + 1) == Some(&b'^'));
                // A `]` directly after the `[` is literal.
                loop {
                    match self.pattern.get(place) {
                        None => return Err(malformed("missing ']'")),
                        Some(b'%') => place += 2,
                        Some(_) => place += 1,
                    }
                    if self.pattern.get(place) == Some(&b']') {
                        return Ok(place + 1);
                    }
                }
            }
            _ => Ok(at + 1),
        }
    }

    /// Whether the byte at `from` is in the class from `at` to `behind`.
    fn is_one(&self, from: usize, at: usize, behind: usize) -> bool {
        let Some(&byte) = self.text.get(from) else { return false };
        match self.pattern[at] {
            b'.' => true,
            b'%' => is_of_class(byte, self.pattern[at + 1]),
            b'[' => self.is_in_set(byte, at, behind),
            literal => literal == byte,
        }
    }

    fn is_in_set(&self, byte: u8, at: usize, behind: usize) -> bool {
        let set = &self.pattern[at + 1..behind - 1];
        let (is_negated, set) = match set.strip_prefix(b"^") {
            Some(rest) => (true, rest),
            None => (false, set),
        };
        let (mut place, mut is_in) = (0, false);
        while let Some(&first) = set.get(place) {
            match (first, set.get(place + 1), set.get(place + 2)) {
                (b'%', Some(class), _) => {
                    is_in |= is_of_class(byte, *class);
                    place += 2;
                }
                (low, Some(b'-'), Some(high)) => {
                    is_in |= (low..=*high).contains(&byte);
                    place += 3;
                }
                (literal, ..) => {
                    is_in |= literal == byte;
                    place += 1;
                }
            }
        }
        is_in != is_negated
    }
}

fn is_of_class(byte: u8, class: u8) -> bool {
    let is_of = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 11,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_of != class.is_ascii_uppercase()
}
