//! Does nothing: without it, cargo would not look at the build dependencies.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
