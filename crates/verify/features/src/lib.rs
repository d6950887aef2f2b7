//! One set of features for external libraries. Cargo unifies a library's features over the crates
//! that are built together, so `cargo test -p X` would rebuild half of what `cargo test
//! --workspace` has built. Therefore every crate has this one among its dev-dependencies, which
//! gives all builds of tests the same features. Released programs do not depend on it.
//! `.ci/features` checks that no crate lacks it.
