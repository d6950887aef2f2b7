//! Tests: what the parser accepts, refuses and keeps.

use super::super::test_grant::TestGrant;
use super::*;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use proptest::prelude::*;

const VALUE_BYTES_MAX: usize = 64 << 20;
const COMMAND_BYTES_MAX: usize = VALUE_BYTES_MAX + COMMAND_BYTES_BESIDE;

type Parser = super::Parser<TestGrant>;

/// Grants the parser as much as it wants.
fn grant(parser: &mut Parser) {
    if let Some(wants) = parser.wants() {
        parser.accept(TestGrant::new(wants.room));
    }
}

/// Feeds all of `input`, and grants what the parser wants.
fn feed(parser: &mut Parser, mut input: &[u8]) {
    while !input.is_empty() {
        let used = parser.parse(input).unwrap();
        input = &input[used..];
        grant(parser);
    }
}

fn collect(arguments: Arguments<'_>) -> Vec<Vec<u8>> {
    (0..arguments.count()).map(|index| arguments.prefix(index).to_vec()).collect()
}

/// Feeds `input` in pieces of `piece` bytes, and returns all commands.
fn commands(input: &[u8], piece: usize) -> Result<Vec<Vec<Vec<u8>>>, ProtocolError> {
    let (mut parser, mut buffer, mut found) = (Parser::new(VALUE_BYTES_MAX), Vec::new(), Vec::new());
    for piece in input.chunks(piece) {
        buffer.extend_from_slice(piece);
        loop {
            let used = parser.parse(&buffer)?;
            buffer.drain(..used);
            let Some(arguments) = parser.command() else { break };
            found.push(collect(arguments));
            parser.release();
        }
    }
    Ok(found)
}

fn refusal(input: &[u8]) -> String {
    commands(input, 7).unwrap_err().to_string()
}

#[test]
fn arrays_and_inline_commands_are_parsed() {
    let found = commands(
        b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n*0\r\n*-1\r\n\r\nset k \"a \\x41\\n\" 'it\\'s'\r\nPING\n",
        3,
    );
    let text = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    assert_eq!(
        found,
        Ok(vec![text(&["GET", "a\r\nb"]), text(&["set", "k", "a A\n", "it's"]), text(&["PING"])])
    );
}

#[test]
fn invalid_lengths_are_refused_as_in_redis() {
    for length in ["9223372036854775808", "-1", "536870913", "x", "1 "] {
        let request = format!("*1\r\n${length}\r\n");
        assert_eq!(refusal(request.as_bytes()), "Protocol error: invalid bulk length", "{length}");
    }
    for count in ["9223372036854775808", "2147483648", "x"] {
        let request = format!("*{count}\r\n");
        assert_eq!(refusal(request.as_bytes()), "Protocol error: invalid multibulk length", "{count}");
    }
    assert_eq!(
        refusal(b"*1048577\r\n"),
        "Protocol error: invalid multibulk length: the limit is 1048576 arguments"
    );
    assert_eq!(refusal(b"*1\r\n+OK\r\n"), "Protocol error: expected '$', got '+'");
    assert_eq!(refusal(b"set a \"b\r\n"), "Protocol error: unbalanced quotes in request");
    assert_eq!(refusal(&[b'a'; 70_000]), "Protocol error: too big inline request");
    assert_eq!(refusal(&[b'*'; 70_000]), "Protocol error: too big mbulk count string");
}

#[test]
fn a_long_argument_is_counted_but_not_kept() {
    let mut parser = Parser::new(VALUE_BYTES_MAX);
    assert_eq!(parser.parse(b"*2\r\n$70000000\r\n"), Ok(15));
    let megabyte = vec![b'v'; 1_000_000];
    for _ in 0..70 {
        assert_eq!(parser.parse(&megabyte), Ok(1_000_000));
    }
    assert_eq!(parser.parse(b"\r\n$1\r\nx\r\n"), Ok(9));
    let arguments = parser.command().unwrap();
    assert_eq!((arguments.length(0), arguments.prefix(0).len()), (70_000_000, ARGUMENT_BYTES_KEPT));
    assert_eq!(arguments.prefix(1), b"x");
    parser.release();
    assert!(parser.list.data.capacity() <= ARGUMENT_BYTES_KEPT);
}

#[test]
fn a_value_is_kept_whole_if_its_command_has_room() {
    let mut parser = Parser::new(VALUE_BYTES_MAX);
    feed(&mut parser, b"*4\r\n$4\r\nMSET\r\n");
    let lengths = [VALUE_BYTES_MAX, VALUE_BYTES_MAX - (1 << 20), 2 << 20];
    for length in lengths {
        feed(&mut parser, format!("${length}\r\n").as_bytes());
        feed(&mut parser, &vec![b'v'; length]);
        feed(&mut parser, b"\r\n");
    }
    let arguments = parser.command().unwrap();
    assert_eq!([1, 2, 3].map(|index| arguments.length(index)), lengths);
    let kept = [lengths[0], lengths[1], ARGUMENT_BYTES_KEPT];
    assert_eq!([1, 2, 3].map(|index| arguments.prefix(index).len()), kept);
}

#[test]
fn the_kept_bytes_of_a_command_are_bounded() {
    // Each argument takes 8 bytes in addition to its own.
    let bodies = COMMAND_BYTES_MAX / (4_000 + 8);
    let mut parser = Parser::new(VALUE_BYTES_MAX);
    parser.parse(b"*80000\r\n").unwrap();
    let mut body = b"$4000\r\n".to_vec();
    body.extend([b'v'; 4_000]);
    body.extend(b"\r\n");
    for _ in 0..bodies {
        assert_eq!(parser.parse(&body), Ok(body.len()));
    }
    assert!(parser.memory() <= COMMAND_BYTES_MAX / 4 * 5);
    // Not even the kept part of a longer argument fits into the rest.
    let cut_short = b"$100000000\r\n";
    assert_eq!(parser.parse(cut_short), Err(ProtocolError::CommandTooLong(COMMAND_BYTES_MAX)));
}

#[test]
fn a_million_arguments_are_accepted() {
    let mut request = format!("*{ARGUMENTS_MAX}\r\n").into_bytes();
    request.extend(b"$1\r\nx\r\n".repeat(ARGUMENTS_MAX));
    let mut parser = Parser::new(VALUE_BYTES_MAX);
    assert_eq!(parser.parse(&request), Ok(request.len()));
    assert_eq!(parser.command().unwrap().count(), ARGUMENTS_MAX);
    assert_eq!(parser.command().unwrap().prefix(ARGUMENTS_MAX - 1), b"x");
    parser.release();
    assert!(parser.memory() <= ARGUMENT_BYTES_KEPT + 64 * size_of::<Span>());
}

proptest! {
    #[test]
    fn any_split_of_the_input_gives_the_same_commands(
        expected in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..5), 0..5),
        piece in 1usize..50,
    ) {
        let mut input = Vec::new();
        for command in &expected {
            input.extend(format!("*{}\r\n", command.len()).bytes());
            for argument in command {
                input.extend(format!("${}\r\n", argument.len()).bytes());
                input.extend(argument);
                input.extend(b"\r\n");
            }
        }
        prop_assert_eq!(commands(&input, piece), Ok(expected));
    }

    #[test]
    fn random_bytes_never_panic(
        input in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"*$\r\n12-\"'\\".to_vec())], 0..200),
        piece in 1usize..50,
    ) {
        let whole = commands(&input, input.len().max(1));
        prop_assert_eq!(commands(&input, piece), whole);
    }
}

#[test]
fn a_command_may_fill_its_limit_exactly() {
    for (spare, is_taken) in [(1, true), (0, true), (-1, false)] {
        let mut parser = Parser::new(VALUE_BYTES_MAX);
        parser.state = State::Header { arguments_left: 1 };
        let used = size_of::<Span>() + 100;
        parser.list.data = vec![0; (COMMAND_BYTES_MAX - used).strict_sub_signed(spare)];
        let parsed = parser.parse(b"$100\r\n");
        assert_eq!(parsed.is_ok(), is_taken, "{spare} bytes are left");
        assert!(is_taken || parsed == Err(ProtocolError::CommandTooLong(COMMAND_BYTES_MAX)));
    }
}

#[test]
fn long_buffers_grow_by_a_quarter_when_full() {
    const LONG: usize = 1 << 20;
    for (capacity, length, additional, grown) in [
        (LONG, LONG - 10, 10, LONG),
        (LONG, LONG, 10, LONG + LONG / 4),
        (LONG, LONG, LONG, 2 * LONG),
        (LONG - 1, LONG - 1, 10, LONG - 1),
        (100, 100, 10, 100),
    ] {
        let mut data = Vec::with_capacity(capacity);
        data.resize(length, 0);
        reserve(&mut data, additional);
        assert_eq!(data.capacity(), grown, "{capacity} {length} {additional}");
    }
}
