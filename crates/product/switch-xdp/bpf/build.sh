#!/bin/sh
# Compiles the eBPF objects to the same bytes from any directory.
#   build.sh                writes nicekv.bpf.o and gets.bpf.o beside the source
#   build.sh --check        fails if a committed object differs from what its source compiles to
#   build.sh --output FILE  writes the first elsewhere
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
compile() {
    clang -O2 -g -Wall -Werror -target bpf -mcpu=v3 "-I/usr/include/$(uname -m)-linux-gnu" \
        -I../../proto/include -fdebug-compilation-dir=. -c "$1" -o "$object"
    llvm-strip -g "$object"
}
if [ "${1-}" = --output ]; then
    compile nicekv.bpf.c
    cat "$object" >"$output"
    exit
fi
for name in nicekv.bpf gets.bpf; do
    compile "$name.c"
    if [ -n "$output" ]; then
        cat "$object" >"$name.o"
    elif ! cmp "$object" "$name.o"; then
        echo "bpf/$name.o is not what its source compiles to: run bpf/build.sh and commit the result" >&2
        exit 1
    fi
done
