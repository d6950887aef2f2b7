//! A keyspace whose partitions are ranges of keys.

use crate::cluster::{Redis, Up, nicekv, outcome};

/// Keys that share 16 bytes, keys just before and at a border, and the last possible key.
const KEYS: [&str; 7] =
    ["a", "fruit:apple", "fruit:apple:of-the-garden", "fruit:apple:of-the-garage", "g", "m", "\u{10ffff}"];

fn ids(list: &str) -> Vec<u64> {
    list.lines().map(|line| line.split(' ').nth(1).unwrap().parse().unwrap()).collect()
}

#[test]
fn range_partitions_split_and_merge_while_clients_continue() {
    let scratch = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| outcome(nicekv(scratch.path(), arguments));
    let up = Up::start(scratch.path(), &["--keyspace", "orders=partitioning=range,partitions=2"]);
    let mut redis = up.redis();
    assert_eq!(redis.call(&["SELECT", "1"]), "+OK");
    for (number, key) in KEYS.iter().enumerate() {
        assert_eq!(redis.call(&["SET", key, &number.to_string()]), "+OK");
    }
    let check = |redis: &mut Redis| {
        for (number, key) in KEYS.iter().enumerate() {
            assert_eq!(redis.call(&["GET", key]), format!("${number}"), "{key}");
            let got = run(&["get", key, "--keyspace", "orders"]);
            assert_eq!(got.1, number.to_string(), "{key}: {}", got.2);
        }
    };
    check(&mut redis);
    let list = || run(&["partition", "list", "--keyspace", "orders"]).1;
    assert!(list().contains("orders the first key to before \"\\x80\","), "{}", list());

    for key in ["fruit:apple:of-the-garden", "m"] {
        let (code, output, error) = run(&["partition", "split", "--key", key, "--keyspace", "orders"]);
        assert_eq!(code, Some(0), "{output}{error}");
        assert!(output.contains(&format!("\"{}\" to before", &key[..key.len().min(16)])), "{output}");
        check(&mut redis);
    }
    let split = list();
    for range in [
        "the first key to before \"fruit:apple:of-t\"",
        "\"fruit:apple:of-t\" to before \"m\"",
        "\"m\" to before \"\\x80\"",
        "\"\\x80\" to the last key",
    ] {
        assert!(split.contains(&format!(" orders {range},")), "{range}: {split}");
    }
    // A partition cannot be split where another one begins.
    let refused = run(&["partition", "split", "--key", "m", "--keyspace", "orders"]);
    assert_eq!(refused.0, Some(2), "{}", refused.2);
    assert!(refused.2.contains("cannot begin at 6d0000"), "{}", refused.2);

    let told = run(&["explain", "fruit:apple", "--keyspace", "orders"]).1;
    for part in
        ["match value 66727569743a6170706c650000000000", "get: record to ", "put: record to ", "agree"]
    {
        assert!(told.contains(part), "{part} in {told}");
    }
    let all = ids(&split);
    let [one, other] = [all[0].to_string(), all[1].to_string()];
    let (code, output, error) = run(&["partition", "merge", &one, &other]);
    assert_eq!(code, Some(0), "{output}{error}");
    check(&mut redis);
    assert_eq!(ids(&list()).len(), 3);
    assert_eq!(up.interrupt(), Some(0));
}

#[test]
fn created_range_keyspace_keeps_its_order() {
    let scratch = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| outcome(nicekv(scratch.path(), arguments));
    let up = Up::start(scratch.path(), &["--data-dir", "data"]);
    let create = ["keyspace", "create", "orders", "--partitioning", "range", "--partitions", "1"];
    let (code, output, error) = run(&create);
    assert_eq!(code, Some(0), "{output}{error}");
    assert_eq!(run(&["put", "m", "1", "--keyspace", "orders"]).0, Some(0));
    assert_eq!(run(&["partition", "split", "--key", "m", "--keyspace", "orders"]).0, Some(0));
    assert_eq!(up.interrupt(), Some(0));

    let up = Up::start(scratch.path(), &["--data-dir", "data"]);
    assert_eq!(run(&["get", "m", "--keyspace", "orders"]).1, "1");
    let list = run(&["partition", "list", "--keyspace", "orders"]).1;
    assert!(list.contains("\"m\" to the last key"), "{list}");
    assert_eq!(up.interrupt(), Some(0));
}

#[test]
fn scan_lists_keys_in_order_across_partitions() {
    const LETTER_KEYS: usize = 40;
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--keyspace", "orders=range,chain"]);
    let mut redis = up.redis();
    assert_eq!(redis.call(&["SELECT", "1"]), "+OK");
    // More keys in one partition than the first requests of a scan return.
    let key = |letter: char, number: usize| format!("{letter}-{number:03}-{}", "long".repeat(20));
    let keys: Vec<String> =
        ('a'..='z').flat_map(|letter| (0..LETTER_KEYS).map(move |number| key(letter, number))).collect();
    keys.iter().for_each(|key| assert_eq!(redis.call(&["SET", key, "value"]), "+OK"));
    let scan = |words: &[&str]| {
        let (code, output, error) =
            outcome(nicekv(scratch.path(), &[&["scan", "--keyspace", "orders"], words].concat()));
        assert_eq!(code, Some(0), "{words:?}: {error}");
        output.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(scan(&[]), keys);
    let with_values: Vec<String> = keys.iter().map(|key| format!("{key}\tvalue")).collect();
    assert_eq!(scan(&["--values"]), with_values);
    assert_eq!(scan(&["c-010", &keys[500]]), keys[2 * LETTER_KEYS + 10..=500]);
    for limit in [1, 32, 33, 700, 5000] {
        assert_eq!(scan(&["--limit", &limit.to_string()]), keys[..limit.min(keys.len())]);
        let from = scan(&[&keys[100], "--limit", &limit.to_string()]);
        assert_eq!(from, keys[100..(100 + limit).min(keys.len())]);
    }
    assert_eq!(scan(&["b", "c", "--count"]), [LETTER_KEYS.to_string()]);
    assert_eq!(scan(&["zz"]), [""; 0]);
    // In a hashed keyspace, a scan lists all keys, in no particular order.
    assert_eq!(redis.call(&["SELECT", "0"]), "+OK");
    keys[..100].iter().for_each(|key| assert_eq!(redis.call(&["SET", key, "value"]), "+OK"));
    let (_, output, error) = outcome(nicekv(scratch.path(), &["scan", &keys[10], &keys[89]]));
    let mut listed: Vec<&str> = output.lines().collect();
    listed.sort_unstable();
    assert_eq!(listed, keys[10..=89], "{error}");
    assert_eq!(up.interrupt(), Some(0));
}
