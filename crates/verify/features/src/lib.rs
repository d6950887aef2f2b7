//! Cargo builds a library once for each set of features that somebody asks of it, and the crates that are built together decide which: `cargo test -p X` would
//! build half of what `cargo test --workspace` has built again. So every crate has this one among its dev-dependencies, and with it the same features.
//! What is shipped does not depend on it. `.ci/features` checks that no crate is left out.
