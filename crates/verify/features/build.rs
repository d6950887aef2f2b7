//! An empty build script: without one, cargo would ignore the build dependencies.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
