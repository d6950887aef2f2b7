#!/bin/sh
# Compiles the eBPF object to the same bytes from any directory.
#   build.sh                writes nicekv.bpf.o beside the source
#   build.sh --check        fails if the committed object differs from what its source compiles to
#   build.sh --output FILE  writes elsewhere
# Needs clang 14 and llvm-strip (Debian 12: apt-get install clang llvm libbpf-dev linux-libc-dev).
set -eu
case "${1-}" in
'') output=$(cd "$(dirname "$0")" && pwd)/nicekv.bpf.o ;;
--check) output= ;;
--output) output=$(cd "$(dirname "$2")" && pwd)/$(basename "$2") ;;
*) echo "usage: build.sh [--check | --output FILE]" >&2 && exit 2 ;;
esac
cd "$(dirname "$0")"
object=$(mktemp)
trap 'rm -f "$object"' EXIT
# -g: the loader reads the map definitions from BTF. The other debug sections, which hold paths, are stripped.
clang -O2 -g -Wall -Werror -target bpf -mcpu=v3 "-I/usr/include/$(uname -m)-linux-gnu" \
    -I../../wire/include -fdebug-compilation-dir=. -c nicekv.bpf.c -o "$object"
llvm-strip -g "$object"
if [ -n "$output" ]; then
    cat "$object" >"$output"
elif ! cmp "$object" nicekv.bpf.o; then
    echo "bpf/nicekv.bpf.o is not what its source compiles to: run bpf/build.sh and commit the result" >&2
    exit 1
fi
