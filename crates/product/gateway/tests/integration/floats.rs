//! INCRBYFLOAT replies as redis-server does, to the last digit.
//!
//! Values and increments are drawn around everything that the 80-bit format rounds: more digits
//! than its 64 bits hold, magnitudes far apart, the ends of its range, and texts that are almost
//! numbers.

use crate::support;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::io::Write;
use support::{RedisServer, Resp, World, request};

const CASES: usize = 5_000;
/// Commands written before their replies are read; they occupy less than the socket buffers hold.
const CASES_AT_ONCE: usize = 100;

fn text() -> impl Strategy<Value = String> {
    let decimal = "[-+]?[0-9]{1,25}(\\.[0-9]{0,30})?";
    let tie = prop::sample::select(vec![
        "0.5",
        "1",
        "1.5",
        "2",
        "4",
        "9223372036854775808",
        "18446744073709551615",
    ]);
    prop_oneof![
        4 => decimal,
        2 => "[-+]?[0-9]{1,4}\\.[0-9]{0,6}",
        2 => ("[-+]?[0-9]{0,20}\\.?[0-9]{0,20}", -40i32..40).prop_map(|(digits, power)| format!("{digits}e{power}")),
        1 => ("[-+]?[0-9]{1,20}", -1_000i32..980).prop_map(|(digits, power)| format!("{digits}E{power}")),
        1 => ("[-+]?[0-9]", 4_000i32..6_000).prop_map(|(digit, power)| format!("{digit}e-{power}")),
        1 => "[-+]?0[xX][0-9a-fA-F]{0,20}\\.?[0-9a-fA-F]{0,20}([pP][-+]?[0-9]{1,3})?",
        1 => (tie, 0u32..70).prop_map(|(tie, shift)| format!("0x1p{shift}").replace("0x1p0", tie)),
        1 => "[-+]?(inf|INF|Infinity|nan|NaN|nan\\(1\\)|infin)",
        1 => "[-+ .0-9eExXpP]{0,6}",
        1 => Just("1.18973149535723176502e4932".to_owned()),
        1 => Just("-1.18973149535723176502e4932".to_owned()),
        1 => Just(String::new()),
    ]
}

/// Reports the first command whose replies differ. A sum that is too long for a value in NICEKV is
/// not compared.
#[test]
fn float_sums_equal_those_of_redis() {
    let Some(redis) = RedisServer::start() else {
        nicekv_testkit::needs(&["redis-server"], "float_sums_equal_those_of_redis");
        return;
    };
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let (mut ours, mut theirs) = (Resp::connect(address), Resp::connect(redis.address));
    // The cases are the same in every run.
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut draw = || (text(), text()).new_tree(&mut runner).unwrap().current();
    for _ in 0..CASES / CASES_AT_ONCE {
        let cases: Vec<_> = (0..CASES_AT_ONCE).map(|_| draw()).collect();
        let commands: Vec<u8> = cases
            .iter()
            .enumerate()
            .flat_map(|(number, (value, delta))| {
                let key = format!("number{number}");
                let key = key.as_bytes();
                let set = request(&[b"SET", key, value.as_bytes()]);
                [set, request(&[b"INCRBYFLOAT", key, delta.as_bytes()]), request(&[b"GET", key])]
            })
            .flatten()
            .collect();
        ours.stream.write_all(&commands).unwrap();
        theirs.stream.write_all(&commands).unwrap();
        for case in &cases {
            for _ in 0..3 {
                let (found, expected) = (ours.reply(), theirs.reply());
                if expected.len() <= 1_024 {
                    assert_eq!(
                        found.escape_ascii().to_string(),
                        expected.escape_ascii().to_string(),
                        "{case:?}"
                    );
                }
            }
        }
    }
}
