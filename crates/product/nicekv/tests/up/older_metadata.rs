//! While the cluster is stopped, the metadata state is replaced by an older copy (docs/FAULTS.md
//! row 40).

use crate::cluster::{Up, nicekv, outcome};
use std::fs;

const KEYS: usize = 200;

#[test]
fn row_40_an_older_copy_of_the_metadata_state_is_refused_with_advice() {
    let scratch = tempfile::tempdir().unwrap();
    let here = scratch.path();
    let start = || Up::start(here, &["--data-dir", "data"]);
    let put = |up: &Up, round: usize| {
        let mut redis = up.redis();
        for key in 0..KEYS {
            assert_eq!(redis.call(&["SET", &key.to_string(), &round.to_string()]), "+OK");
        }
    };
    let state = here.join("data/metadata/metadata-state");
    let up = start();
    put(&up, 1);
    assert_eq!(up.interrupt(), Some(0));
    let older = fs::read(&state).unwrap();
    // Each start of the nodes begins a new epoch.
    let up = start();
    put(&up, 2);
    assert_eq!(up.interrupt(), Some(0));
    let newest = fs::read(&state).unwrap();
    fs::write(&state, older).unwrap();
    // The start is refused repeatedly: epochs that a refused start begins do not make the copy look
    // current.
    for _ in 0..2 {
        let (code, _, said) = outcome(nicekv(here, &["up", "--data-dir", "data", "--resp", "127.0.0.1:0"]));
        let said = said.lines().filter(|line| line.starts_with("nicekv: ")).collect::<Vec<_>>().join("\n");
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("the metadata state is an older copy"), "{said}");
        assert!(said.contains("put back the newest metadata state") && said.lines().count() == 1, "{said}");
    }
    fs::write(&state, newest).unwrap();
    let up = start();
    let mut redis = up.redis();
    for key in 0..KEYS {
        assert_eq!(redis.call(&["GET", &key.to_string()]), "$2");
    }
    assert_eq!(up.interrupt(), Some(0));
}
