//! Scripts that try to crash or block a node: no script of a client may succeed (docs/FAULTS.md
//! rows 38 and 39).

use crate::cluster::{Redis, Up};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Generous for a busy machine; a node that ran a script in its own thread would be silent for
/// seconds.
const SET_MAX: Duration = Duration::from_millis(800);
const SCRIPT_MAX: Duration = Duration::from_secs(10);

/// Scripts that run on the key `{a}k`, once alone and once in a transaction. `S` stands for a text
/// of 200,000 letters, `D` for one of 200,000 digits.
const ATTACKS: &[&str] = &[
    // CVE-2025-46817: overflow of result counts.
    "return {unpack({}, -2^31, 2^31-1)}",
    "return {unpack({}, -2147483648, 2147483647)}",
    "return {unpack({}, 0, 2^31-1)}",
    "return {unpack({}, 2^31-2, 2^31-1)}",
    "return {unpack({}, -2^53, 2^53)}",
    "return {unpack({}, 0/0, 1/0)}",
    "return {unpack({}, 1, 8000)}",
    "return {unpack({}, 1, '7999')}",
    "return select('#', unpack({}, 1, 6999))",
    // CVE-2025-49844: garbage collection during parsing.
    "local t = {} for i = 1, 1e5 do t[i] = 'x' .. i end return load",
    "for i = 1, 1e4 do local f = loadstring(('a'):rep(i)) end",
    // CVE-2025-46818: changed metatables of basic types that affect the next script.
    "getmetatable('').__index = function() while true do end end return ('x').y",
    "getmetatable('').__add = function() while true do end end return 'x' + 1",
    // CVE-2025-46819: long brackets.
    "return [==================================================================================================[",
    // CVE-2024-31449.
    "return bit.tohex(1, -2147483648)",
    "return bit.tohex(0, 2^31)",
    "return bit.tohex(2^53, 1/0)",
    // CVE-2022-24834, CVE-2024-46981: cjson, and garbage collection.
    "return cjson.encode({[2^31] = 1})",
    "return cjson.encode({[1e15] = 1})",
    "return cjson.encode(S:rep(2))",
    "local t = {} for i = 1, 99999 do t = {t} end return cjson.encode(t)",
    "while true do cjson.decode('[' .. ('1e308,'):rep(9000) .. '1]') end",
    "collectgarbage('collect') return 1",
    // CVE-2015-4335: bytecode.
    "return loadstring('\\27Lua')()",
    "return string.dump(function() end)",
    // Long loops inside library functions.
    "while true do pcall(table.insert, {}, 2^31, nil) end",
    "table.insert({}, 2^31, nil)",
    "table.insert({}, -2^31, 1)",
    "local t = {} for i = 0, 30 do t[2^i] = 1 end table.insert(t, 1, 1) return #t",
    "local t = {} for i = 0, 30 do t[2^i] = 1 end while true do table.remove(t, 1) end",
    "local t = {} for i = 0, 30 do t[2^i] = 1 end return table.concat(t)",
    "local t = {} for i = 0, 30 do t[2^i] = 1 end table.foreachi(t, type)",
    "table.remove({}, -2^31)",
    "return table.concat({}, '', -2^31, 2^31)",
    "table.sort({3, 2, 1, 5, 4, 9, 7}, function() return true end)",
    "local t = {} for i = 1, 9000 do t[i] = S end while true do table.sort(t) end",
    "local t = {} for i = 1, 1e5 do t[i] = i end for i = 1, 1e5 do t[i] = nil end while true do next(t) end",
    "local t = {} for i = 1, 1e5 do t['k' .. i] = i end while true do table.maxn(t) end",
    // Calls that cost much more than the instructions counted for them.
    "while true do local x = string.format('%99.99f', 1e308) end",
    "while true do local x = string.format('%99.99f%99.99f%99.99f%99.99f', 1e308, -1e308, 1e308, 1e308) end",
    "while true do local x = string.format('%q', S) end",
    "while true do redis.sha1hex(S) end",
    "while true do local x = D + 1 end",
    "while true do local x = tonumber(D) end",
    "while true do local x = tonumber(D, 36) end",
    "while true do local x = S:upper() end",
    "while true do local x = S:lower():reverse() end",
    "while true do local x = S:sub(2) end",
    "while true do local x = {S:byte(1, 7000)} end",
    "while true do local x = S .. 'a' end",
    "while true do local x = S < S end",
    "while true do local x = S:gsub('a', '%0%0') end",
    "while true do local x = S:find(('a'):rep(900) .. 'b', 1, true) end",
    "while true do local x = S:match('(.*)') end",
    "while true do local x = tostring(1e308 / 3) end",
    "while true do local x = 1e308 / 3 .. '' end",
    "local function f(...) return select('#', ...) end while true do f(unpack({}, 1, 6999)) end",
    "while true do coroutine.wrap(function() end)() end",
    "while true do end",
    "local s = 'x' while true do s = s .. s end",
    // Commands on values that are long or have many fields.
    "for i = 1, 1000 do redis.call('hset', KEYS[1] .. 'h', i, i) end",
    "redis.call('del', KEYS[1]) for i = 1, 1000 do redis.call('hset', KEYS[1], i, i) end while true do redis.call('hset', KEYS[1], 5, 6) end",
    "redis.call('del', KEYS[1]) for i = 1, 1000 do redis.call('hset', KEYS[1], i, i) end while true do redis.call('hgetall', KEYS[1]) end",
    "redis.call('set', KEYS[1], S:sub(1, 57000)) while true do redis.call('strlen', KEYS[1]) end",
    "redis.call('set', KEYS[1], S:sub(1, 57000)) while true do redis.call('bitcount', KEYS[1]) end",
    "redis.call('set', KEYS[1], S:sub(1, 57000)) while true do redis.call('setrange', KEYS[1], 56000, 'x') end",
    "redis.call('set', KEYS[1], S:sub(1, 57000)) while true do redis.call('append', KEYS[1], 'x') end",
    "redis.call('setrange', KEYS[1], 2^31, 'x')",
    "redis.call('setbit', KEYS[1], 2^32 - 1, 1)",
    "redis.call('incrbyfloat', KEYS[1], 1e308)",
    "return redis.call('mget', unpack(KEYS, 1, 1))",
    "while true do redis.pcall('nosuch') end",
    "while true do redis.pcall('publish', 'c', S) end",
    "return redis.call(unpack({}, 1, 6999))",
    "return setmetatable({}, {__index = function(t, i) return i end})",
];

fn source(attack: &str) -> String {
    let is_used = |name: &str| attack.contains(name);
    let texts = [("S", "('a'):rep(200000)"), ("D", "('9'):rep(200000)")];
    let given = texts.iter().filter(|(name, _)| is_used(name));
    let given: String = given.map(|(name, text)| format!("local {name} = {text} ")).collect();
    given + attack
}

/// Runs an attack; the reply shows its result.
fn attacked(redis: &mut Redis, attack: &str) {
    let source = source(attack);
    let started = Instant::now();
    let reply = redis.call_for_all(&["EVAL", &source, "1", "{a}k"]);
    assert!(started.elapsed() < SCRIPT_MAX, "{:?}: {attack}", started.elapsed());
    let is_lost = ["outcome unknown", "no answer", "please report"].iter().any(|text| reply.contains(text));
    assert!(!is_lost, "{attack}: {reply}");
    assert_eq!(redis.call(&["MULTI"]), "+OK");
    assert_eq!(redis.call(&["SET", "{a}k", "1"]), "+QUEUED");
    assert_eq!(redis.call(&["EVAL", &source, "1", "{a}k"]), "+QUEUED");
    let reply = redis.call_for_all(&["EXEC"]);
    assert!(!reply.contains("outcome unknown") && !reply.contains("please report"), "{attack}: {reply}");
}

/// Holds back the other test of this file: scripts of two clusters at once need all processors, so
/// that waits would show the load of the machine.
fn alone() -> MutexGuard<'static, ()> {
    static RUNS: Mutex<()> = Mutex::new(());
    RUNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets a flag when it is dropped.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn row_39_attacks_by_scripts_end_and_do_not_block_other_clients() {
    let _alone = alone();
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--data-dir", "data"]);
    let is_over = AtomicBool::new(false);
    let times = std::thread::scope(|scope| {
        let mut other = up.redis();
        let is_over = &is_over;
        let other = scope.spawn(move || {
            let mut times = Vec::new();
            while !is_over.load(Ordering::Acquire) {
                let started = Instant::now();
                assert_eq!(other.call(&["SET", &format!("key {}", times.len() % 100), "value"]), "+OK");
                times.push(started.elapsed());
            }
            times.sort();
            times
        });
        let mut redis = up.redis();
        // The flag is set even if an attack fails the test.
        let ended = OnDrop(is_over);
        ATTACKS.iter().for_each(|attack| attacked(&mut redis, attack));
        drop(ended);
        other.join().unwrap()
    });
    let longest = &times[times.len().saturating_sub(2)..];
    println!(
        "{} attacks; {} SETs of another client, the longest took {longest:?}",
        ATTACKS.len(),
        times.len()
    );
    // Each attack runs twice, because another process may delay a single SET.
    assert!(longest[0] < SET_MAX, "another client waited for {longest:?}");
    up.kill();
    let up = Up::start(scratch.path(), &["--data-dir", "data"]);
    let mut redis = up.redis();
    assert_eq!(redis.call(&["EVAL", "return redis.call('set', KEYS[1], 'fine')", "1", "{a}k"]), "+OK");
    assert_eq!(redis.call(&["GET", "{a}k"]), "$fine");
    assert_eq!(up.interrupt(), Some(0));
}

/// The script workers of this process.
fn workers(parent: u32) -> Vec<u32> {
    let is_worker = |path: &Path| {
        let status = fs::read_to_string(path.join("status")).unwrap_or_default();
        let command = fs::read(path.join("cmdline")).unwrap_or_default();
        status.lines().any(|line| line == format!("PPid:\t{parent}")) && command.ends_with(b"script-worker\0")
    };
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap());
    let processes = processes.filter(|entry| is_worker(&entry.path()));
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn signal(process: u32, signal: rustix::process::Signal) {
    let process = rustix::process::Pid::from_raw(process as i32).unwrap();
    rustix::process::kill_process(process, signal).unwrap();
}

#[test]
fn row_38_script_workers_may_end_at_any_time() {
    let _alone = alone();
    use rustix::process::Signal;
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--engine", "memory", "--nodes", "1", "--replicas", "1"]);
    let mut redis = up.redis();
    let mut count = move || redis.call(&["EVAL", "return redis.call('incr', KEYS[1])", "1", "k"]);
    assert_eq!(workers(up.process_id()), [0; 0], "none is started before the first script");
    assert_eq!(count(), ":1");
    let first = workers(up.process_id());
    assert_eq!(first.len(), 1, "the worker is kept for further scripts");
    signal(first[0], Signal::KILL);
    assert_eq!(count(), ":2", "a new worker runs the next script");
    let second = workers(up.process_id());
    assert!(second.len() == 1 && second != first, "{second:?}");

    // A worker that dies in the middle of a script.
    signal(second[0], Signal::STOP);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(&mut count);
        let mut other = up.redis();
        assert_eq!(other.call(&["SET", "other", "value"]), "+OK", "the node serves other clients meanwhile");
        signal(second[0], Signal::KILL);
        assert_eq!(waiting.join().unwrap(), ":3", "the script is run again, once");
    });

    // A worker that hangs: the script fails, and the next script gets another worker.
    let third = workers(up.process_id());
    assert!(third.len() == 1 && third != second, "{third:?}");
    signal(third[0], Signal::STOP);
    let reply = count();
    assert!(reply.starts_with("-ERR Script killed: its process has not answered for 4s"), "{reply}");
    assert_eq!(count(), ":4", "the failed script had no effect");
    let last = workers(up.process_id());
    assert_eq!(up.interrupt(), Some(0));
    assert!(
        last.len() == 1 && !Path::new(&format!("/proc/{}", last[0])).exists(),
        "the worker ends with the node"
    );
}
