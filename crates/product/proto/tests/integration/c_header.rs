//! The C header is generated, committed, and agrees with a C compiler.

use std::path::Path;
use std::process::Command;

fn committed() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include/nicekv_wire.h")
}

#[test]
fn committed_header_equals_the_generated_one() {
    let generated = nicekv_proto::c_header::generate();
    if std::env::var_os("NICEKV_BLESS").is_some() {
        std::fs::write(committed(), &generated).unwrap();
    }
    let committed = std::fs::read_to_string(committed()).unwrap_or_default();
    assert_eq!(committed, generated, "run `NICEKV_BLESS=1 cargo test -p nicekv-proto` and review the change");
}

#[test]
fn c_compiler_agrees_on_sizes_and_offsets() {
    if !nicekv_testkit::needs(&["clang"], "c_compiler_agrees_on_sizes_and_offsets") {
        return;
    }
    let compile = |target: &[&str]| {
        let output = Command::new("clang")
            .args(target)
            .args(["-fsyntax-only", "-Wall", "-Werror", "-x", "c", "-I/usr/include/x86_64-linux-gnu"])
            .arg(committed())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    compile(&[]);
    compile(&["-target", "bpf"]);
}
