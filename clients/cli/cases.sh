#!/usr/bin/env bash
# redis-cli against a gateway: what it does beside sending commands. `clients/run --help` says how it is started.
set -uo pipefail

library="redis-cli $(redis-cli --version | cut -d' ' -f2)"
cli() { timeout 60 redis-cli -h "$CLIENTS_HOST" -p "$CLIENTS_PORT" -n "$CLIENTS_DATABASE" "$@"; }

# case NAME FUNCTION: what the function prints when it fails is the detail.
case_of() {
  local detail
  if detail=$("$2" 2>&1); then
    printf 'ok\t%s\t%s\t\n' "$library" "$1"
  else
    printf 'failed\t%s\t%s\t%s\n' "$library" "$1" "$(tr -s '\n\t ' '   ' <<<"$detail")"
  fi
}

# equal IS SHOULD-BE
equal() { [ "$1" = "$2" ] || { echo "${1:0:200}, should be ${2:0:200}"; return 1; }; }
# has TEXT PATTERN
has() { grep -qE -- "$2" <<<"$1" || { echo "${1: -300} has no $2"; return 1; }; }

# One command in RESP, as --pipe takes it.
resp() {
  printf '*%d\r\n' $#
  local word
  for word; do printf '$%d\r\n%s\r\n' "${#word}" "$word"; done
}

pipe() {
  local out
  out=$(for n in $(seq 300); do resp SET "cli:$n" "value $n"; done | cli --pipe) || return
  has "$out" 'errors: 0, replies: 300' && equal "$(cli get cli:300)" 'value 300'
}

scan() {
  equal "$(cli --scan --pattern 'cli:*' | sort -u | wc -l)" 300 && equal "$(cli --scan --pattern 'cli:29?' | wc -l)" 10
}

bigkeys() {
  cli hset cli:hash a 1 b 2 c 3 >/dev/null
  cli set cli:big "$(printf '%02000d' 0)" >/dev/null
  local out
  out=$(cli --bigkeys) || return
  has "$out" 'Biggest +string found .?"cli:big"' && has "$out" 'Biggest +hash found .?"cli:hash"' && has "$out" 'Sampled 302 keys'
}

memkeys() {
  local out
  out=$(cli --memkeys) || return
  has "$out" 'Biggest +string found .?"cli:big"' && has "$out" 'Sampled 302 keys'
}

stat() {
  local out
  # It goes on until it is ended, and a pipe would hold back what it says.
  out=$(timeout 3 stdbuf -oL redis-cli -h "$CLIENTS_HOST" -p "$CLIENTS_PORT" --stat -i 0.2)
  has "$out" 'keys +mem +clients' && has "$out" '^[0-9-]+ +[0-9.]+[KMG] +[0-9]+ +'
}

monitor() {
  local out log
  log=$(mktemp) || return
  redis-cli -h "$CLIENTS_HOST" -p "$CLIENTS_PORT" -n "$CLIENTS_DATABASE" monitor >"$log" &
  local pid=$!
  for _ in $(seq 50); do [ -s "$log" ] && break; sleep 0.1; done
  cli set cli:seen yes >/dev/null
  for _ in $(seq 50); do grep -q cli:seen "$log" && break; sleep 0.1; done
  kill "$pid"
  wait "$pid" 2>/dev/null
  out=$(<"$log")
  rm -f "$log"
  has "$out" "^[0-9.]+ \[$CLIENTS_DATABASE [0-9.:]+\] \"set\" \"cli:seen\" \"yes\"\$"
}

transaction() {
  local out
  out=$(printf 'MULTI\nSET {cli}:a 1\nINCR {cli}:a\nEXEC\n' | cli) || return
  equal "$(tr '\n' ' ' <<<"$out")" 'OK QUEUED QUEUED OK 2 '
}

eval_file() {
  local source out
  source=$(mktemp) || return
  echo 'return {KEYS[1], ARGV[1]}' >"$source"
  out=$(cli --eval "$source" k , v | tr '\n' ' ')
  rm -f "$source"
  equal "$out" 'k v '
}

case_of '--pipe' pipe
case_of '--scan' scan
case_of '--bigkeys' bigkeys
case_of '--memkeys' memkeys
case_of '--stat -i' stat
case_of 'MONITOR' monitor
case_of 'a transaction from standard input' transaction
case_of '--eval' eval_file
cli flushdb >/dev/null
