//! Turns the place of a mutant in the source into an edit that makes it a branch.
//!
//! `cargo mutants` lists the bytes that it would replace. A branch needs more: an operator's
//! operands, an arm's guard. So the file is parsed, and every expression at a mutant's place
//! becomes an edit, which several mutants of one expression share.

use crate::edits::{Edit, Edits, Piece};
use crate::{Genre, Mutant, Position};
use std::collections::BTreeMap;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

type Key = (Genre, usize, usize);

/// The edits for those of `mutants` that can be switched at run time.
pub(crate) fn edits(text: &str, mutants: &[&Mutant]) -> Result<Edits, syn::Error> {
    let lines = Lines::of(text);
    let mut wanted: BTreeMap<Key, Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        let key = (mutant.genre, lines.byte(mutant.span.start), lines.byte(mutant.span.end));
        wanted.entry(key).or_default().push(mutant);
    }
    let mut finder = Finder { lines, wanted, edits: Vec::new() };
    finder.visit_file(&syn::parse_file(text)?);
    Ok(Edits::new(finder.edits))
}

/// Converts lines and characters to byte offsets.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(ends).collect() }
    }

    fn byte(&self, at: Position) -> usize {
        let start = self.starts[at.line - 1];
        let characters = self.text[start..].char_indices();
        start + characters.map(|(byte, _)| byte).nth(at.column - 1).unwrap_or(self.text.len() - start)
    }

    fn range(&self, span: proc_macro2::Span) -> Range<usize> {
        let byte = |at: proc_macro2::LineColumn| self.byte(Position { line: at.line, column: at.column + 1 });
        byte(span.start())..byte(span.end())
    }
}

struct Finder<'a> {
    lines: Lines<'a>,
    wanted: BTreeMap<Key, Vec<&'a Mutant>>,
    edits: Vec<Edit>,
}

fn is(id: u32) -> String {
    format!("crate::__mutants::is({id})")
}

fn text(text: impl Into<String>) -> Piece {
    Piece::Text(text.into())
}

/// `if is(1) { own } else if is(2) { own } else { otherwise }`, in brackets.
fn choice(own: Vec<(u32, Vec<Piece>)>, otherwise: Vec<Piece>) -> Vec<Piece> {
    let mut pieces = vec![text("(")];
    for (id, own) in own {
        pieces.extend([text(format!("if {} {{ ", is(id))), Piece::Begin(id)]);
        pieces.extend(own);
        pieces.extend([Piece::End, text(" } else ")]);
    }
    pieces.push(text("{ "));
    pieces.extend(otherwise);
    pieces.push(text(" })"));
    pieces
}

impl Finder<'_> {
    fn take(&mut self, genre: Genre, range: &Range<usize>) -> Vec<(u32, String)> {
        let mutants = self.wanted.remove(&(genre, range.start, range.end)).unwrap_or_default();
        mutants.iter().map(|mutant| (mutant.id, mutant.replacement.clone())).collect()
    }

    fn range(&self, of: &impl Spanned) -> Range<usize> {
        self.lines.range(of.span())
    }

    fn add(&mut self, range: Range<usize>, pieces: Vec<Piece>) {
        self.edits.push(Edit { range, pieces });
    }

    /// Edits for function mutants, which return another value at once. `const fn`s are skipped: the
    /// compiler evaluates them, so they cannot query the switch.
    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let (Some(first), Some(last)) = (block.stmts.first(), block.stmts.last()) else { return };
        if signature.constness.is_some() {
            return;
        }
        let (first, last) = (self.range(first), self.range(last));
        // `impl Trait` stands for one type, and a mutant would return another.
        let is_opaque = matches!(&signature.output, syn::ReturnType::Type(_, returned) if matches!(**returned, syn::Type::ImplTrait(_)));
        if is_opaque {
            return self.visit_block(block);
        }
        let mut pieces = Vec::new();
        for (id, value) in self.take(Genre::FnValue, &(first.start..last.end)) {
            pieces.extend([text(format!("if {} {{ ", is(id))), Piece::Begin(id)]);
            pieces.extend([text(format!("return {value};")), Piece::End, text(" } ")]);
        }
        if !pieces.is_empty() {
            self.add(first.start..first.start, pieces);
        }
        self.visit_block(block);
    }
}

/// Whether an expression contains `let`, as in `if let … && …`: it cannot be put in parentheses.
fn holds_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => holds_let(&binary.left) || holds_let(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.body(&item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.body(&item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.body(&item.sig, block);
        }
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}

    fn visit_expr_binary(&mut self, expression: &'ast syn::ExprBinary) {
        let mutants = self.take(Genre::BinaryOperator, &self.range(&expression.op));
        if !mutants.is_empty() && !holds_let(&expression.left) && !holds_let(&expression.right) {
            let (left, right) = (self.range(&expression.left), self.range(&expression.right));
            let operator = self.range(&expression.op);
            let own = mutants.into_iter().map(|(id, other)| {
                (
                    id,
                    vec![Piece::Plain(left.clone()), text(format!(" {other} ")), Piece::Plain(right.clone())],
                )
            });
            let otherwise = vec![
                Piece::Source(left.clone()),
                text(" "),
                Piece::Plain(operator),
                text(" "),
                Piece::Source(right.clone()),
            ];
            let pieces = choice(own.collect(), otherwise);
            self.add(left.start..right.end, pieces);
        }
        visit::visit_expr_binary(self, expression);
    }

    fn visit_expr_unary(&mut self, expression: &'ast syn::ExprUnary) {
        let mutants = self.take(Genre::UnaryOperator, &self.range(&expression.op));
        if !mutants.is_empty() {
            let (operator, operand) = (self.range(&expression.op), self.range(&expression.expr));
            let own = mutants.into_iter().map(|(id, _)| (id, vec![Piece::Plain(operand.clone())])).collect();
            let pieces = choice(own, vec![Piece::Plain(operator.clone()), Piece::Source(operand.clone())]);
            self.add(operator.start..operand.end, pieces);
        }
        visit::visit_expr_unary(self, expression);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let deleted = self.take(Genre::MatchArm, &self.range(arm));
        let guard = arm.guard.as_ref().map(|(_, guard)| (self.range(&**guard), holds_let(guard)));
        let replaced =
            guard.as_ref().map_or_else(Vec::new, |(range, _)| self.take(Genre::MatchArmGuard, range));
        match guard {
            Some((range, false)) if !deleted.is_empty() || !replaced.is_empty() => {
                let own = deleted.into_iter().map(|(id, _)| (id, "false".into())).chain(replaced);
                let own = own.map(|(id, value)| (id, vec![text(value)])).collect();
                let pieces = choice(own, vec![Piece::Source(range.clone())]);
                self.add(range, pieces);
            }
            None if !deleted.is_empty() => {
                let end = self.range(&arm.pat).end;
                let mut pieces = Vec::new();
                for (id, _) in deleted {
                    pieces.extend([Piece::Begin(id), text(format!(" if !{}", is(id))), Piece::End]);
                }
                self.add(end..end, pieces);
            }
            _ => {}
        }
        visit::visit_arm(self, arm);
    }
}

#[cfg(test)]
#[path = "find_tests.rs"]
mod tests;
