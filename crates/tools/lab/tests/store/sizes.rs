//! Values of all sizes in all kinds of keyspaces, through the switch in the kernel.

use crate::fixture::LabUnderTest;
use crate::load::Redis;
use crate::matrix_table::{KINDS, SIZE_MAX, check_sizes, keyspace_arguments};
use crate::{as_root, as_root_in_long_runs};

fn values_of_all_sizes(hook: &str) {
    let keyspaces = keyspace_arguments();
    let cluster = ["--nodes", "3", "--clients", "1", "--engine", "memory", "--switch", hook];
    let arguments: Vec<&str> = cluster.into_iter().chain(keyspaces.iter().map(String::as_str)).collect();
    let lab = LabUnderTest::up(&format!("sizes-{hook}"), &arguments);
    // A text in which no part repeats.
    let all: String = (0..SIZE_MAX / 8 + 1).map(|number| format!("{number:07} ")).collect();
    std::thread::scope(|scope| {
        for (number, kind) in KINDS.iter().enumerate() {
            let (mut redis, all) = (Redis::on(&lab, "client-0"), &all);
            scope.spawn(move || {
                assert_eq!(redis.ask(&["SELECT", &number.to_string()]), Ok("OK".into()));
                check_sizes(kind, all, |command| redis.ask(command));
            });
        }
    });
}

#[test]
fn values_of_all_sizes_are_what_was_set_at_tc() {
    as_root("values_of_all_sizes_are_what_was_set_at_tc", || values_of_all_sizes("tc"));
}

#[test]
fn values_of_all_sizes_are_what_was_set_at_xdp() {
    as_root_in_long_runs("values_of_all_sizes_are_what_was_set_at_xdp", || values_of_all_sizes("xdp"));
}
