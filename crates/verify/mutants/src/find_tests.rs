//! The woven form of each kind of mutant.

use super::edits;
use crate::Mutant;

const SOURCE: &str = "\
fn f(a: u32, b: u32) -> bool {
    let sum = a + b * a;
    match sum { 0 => false, 1 if a < b => !(a == b), _ => true }
}
const fn g(a: u32) -> u32 {
    a + 1
}
fn h() -> impl Iterator<Item = u32> {
    [1 + 1].into_iter()
}
";

/// A mutant of the `nth` (from 0) occurrence of `text` in the source.
fn mutant(id: u32, genre: &str, text: &str, nth: usize, replacement: &str) -> Mutant {
    let start = SOURCE.match_indices(text).nth(nth).expect("it is there").0;
    let position = |byte: usize| {
        let line_start = SOURCE[..byte].rfind('\n').map_or(0, |newline| newline + 1);
        let line = SOURCE[..byte].matches('\n').count() + 1;
        serde_json::json!({ "line": line, "column": byte - line_start + 1 })
    };
    let span = serde_json::json!({ "start": position(start), "end": position(start + text.len()) });
    let json = serde_json::json!({ "id": id, "file": "f.rs", "genre": genre, "span": span, "replacement": replacement });
    serde_json::from_value(json).expect("as `cargo mutants` prints it")
}

fn woven(mutants: &[Mutant]) -> (String, Vec<u32>) {
    let mutants: Vec<&Mutant> = mutants.iter().collect();
    let edits = edits(SOURCE, &mutants).unwrap();
    let (text, places) = edits.apply(SOURCE);
    assert!(syn::parse_file(&text).is_ok(), "{text}");
    for (_, own, around) in &places {
        assert!(around[0] <= own[0] && own[0] < own[1] && own[1] <= around[1]);
    }
    (text, edits.ids().collect())
}

#[track_caller]
fn check(mutants: &[Mutant], line: usize, expected: &str) {
    let (text, ids) = woven(mutants);
    assert_eq!(ids.len(), mutants.len());
    assert_eq!(text.lines().nth(line - 1).unwrap().trim(), expected);
    let rest = |text: &str| {
        text.lines()
            .enumerate()
            .filter(|(at, _)| at + 1 != line)
            .map(|(_, line)| line.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(rest(&text), rest(SOURCE), "only that line");
}

#[test]
fn an_operator_is_switched_and_its_operands_may_contain_mutants() {
    check(
        &[
            mutant(7, "BinaryOperator", "+", 0, "-"),
            mutant(8, "BinaryOperator", "*", 0, "/"),
            mutant(9, "BinaryOperator", "+", 0, "*"),
        ],
        2,
        "let sum = (if crate::__mutants::is(7) { a - b * a } else if crate::__mutants::is(9) { a * b * a } else { a + \
         (if crate::__mutants::is(8) { b / a } else { b * a }) });",
    );
}

#[test]
fn a_function_mutant_returns_at_its_start() {
    let body = &SOURCE[SOURCE.find("let sum").unwrap()..SOURCE.find("\n}").unwrap()];
    check(
        &[mutant(1, "FnValue", body, 0, "true")],
        2,
        "if crate::__mutants::is(1) { return true; } let sum = a + b * a;",
    );
}

#[test]
fn match_arms_and_guards_are_switched() {
    check(
        &[
            mutant(1, "MatchArm", "0 => false,", 0, ""),
            mutant(2, "MatchArmGuard", "a < b", 0, "true"),
            mutant(3, "MatchArm", "1 if a < b => !(a == b),", 0, ""),
            mutant(4, "UnaryOperator", "!", 0, ""),
        ],
        3,
        "match sum { 0 if !crate::__mutants::is(1) => false, 1 if (if crate::__mutants::is(3) { false } else if crate::__mutants::is(2) { true } \
         else { a < b }) => (if crate::__mutants::is(4) { (a == b) } else { !(a == b) }), _ => true }",
    );
}

#[test]
fn constants_and_names_are_not_mutated() {
    let constant = [mutant(1, "BinaryOperator", "+", 1, "-"), mutant(2, "FnValue", "a + 1", 0, "0")];
    assert_eq!(woven(&constant), (SOURCE.into(), vec![]));
    let opaque = [mutant(1, "FnValue", "[1 + 1].into_iter()", 0, "::std::iter::empty()")];
    assert_eq!(woven(&opaque), (SOURCE.into(), vec![]));
    let inside = [mutant(1, "BinaryOperator", "+", 2, "-")];
    assert_eq!(woven(&inside).1, [1]);
}
