//! Edits of source text, which may be nested.

use std::ops::Range;

/// A part of the text that replaces an expression.
pub(crate) enum Piece {
    Text(String),
    /// This range of the original, with the edits inside it.
    Source(Range<usize>),
    /// This range of the original without edits: within a mutant's own branch no other mutant is
    /// active.
    Plain(Range<usize>),
    /// The text of a mutant begins here, and extends to the next `End`.
    Begin(u32),
    End,
}

pub(crate) struct Edit {
    pub(crate) range: Range<usize>,
    pub(crate) pieces: Vec<Piece>,
}

/// Edits ordered by their beginning: insertions first, then outer before inner.
pub(crate) struct Edits(Vec<Edit>);

/// A mutant, the bytes of its own text, and those of the edit that contains it.
type Placed = (u32, [usize; 2], [usize; 2]);

impl Edits {
    pub(crate) fn new(mut edits: Vec<Edit>) -> Self {
        edits.sort_by_key(|edit| (edit.range.start, !edit.range.is_empty(), usize::MAX - edit.range.end));
        Self(edits)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        let pieces = self.0.iter().flat_map(|edit| &edit.pieces);
        pieces.filter_map(|piece| match piece {
            Piece::Begin(id) => Some(*id),
            _ => None,
        })
    }

    pub(crate) fn apply(&self, source: &str) -> (String, Vec<Placed>) {
        let mut output = Output { source, text: String::new(), placed: Vec::new() };
        output.copy(&self.0, 0..source.len());
        (output.text, output.placed)
    }
}

struct Output<'a> {
    source: &'a str,
    text: String,
    placed: Vec<Placed>,
}

impl Output<'_> {
    /// Copies this range of the source, with the edits inside it.
    fn copy(&mut self, edits: &[Edit], range: Range<usize>) {
        let mut at = range.start;
        for (index, edit) in edits.iter().enumerate() {
            if edit.range.start < at || edit.range.end > range.end {
                continue;
            }
            self.text.push_str(&self.source[at..edit.range.start]);
            at = edit.range.end;
            self.replace(edit, &edits[index + 1..]);
        }
        self.text.push_str(&self.source[at..range.end]);
    }

    fn replace(&mut self, edit: &Edit, inner: &[Edit]) {
        let (first, start) = (self.placed.len(), self.text.len());
        for piece in &edit.pieces {
            match piece {
                Piece::Text(text) => self.text.push_str(text),
                Piece::Plain(range) => self.text.push_str(&self.source[range.clone()]),
                Piece::Source(range) => self.copy(inner, range.clone()),
                Piece::Begin(id) => {
                    let place = (*id, [self.text.len(), usize::MAX], [start, usize::MAX]);
                    self.placed.push(place);
                }
                Piece::End => {
                    let end = self.text.len();
                    let open = self.placed.iter_mut().rev().find(|(_, own, _)| own[1] == usize::MAX);
                    open.expect("a mutant's text that ends has begun").1[1] = end;
                }
            }
        }
        let end = self.text.len();
        let own = self.placed[first..].iter_mut().filter(|(_, _, around)| around[1] == usize::MAX);
        own.for_each(|(_, _, around)| around[1] = end);
    }
}
