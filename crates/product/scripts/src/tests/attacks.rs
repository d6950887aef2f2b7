//! Scripts that try to exceed their bounds or leave the sandbox.

use super::{lent, reply, run_on};
use std::time::{Duration, Instant};

/// Maximum duration of a script; generous for a busy machine.
const LONGEST: Duration = Duration::from_secs(3);

fn ends(source: &str) -> String {
    let started = Instant::now();
    let reply = reply(source);
    let took = started.elapsed();
    println!("{took:>12?} {source} -> {reply}");
    assert!(took < LONGEST, "{took:?}: {source}");
    reply
}

#[test]
fn too_many_steps_end_a_script_that_catches_errors() {
    for source in [
        "while true do end",
        "repeat until false",
        "local function f() return f() end return f()",
        "while true do pcall(function() while true do end end) end",
        "local function f() pcall(f) while true do end end f()",
        "while true do xpcall(function() while true do end end, function(e) while true do end end) end",
        "while true do coroutine.wrap(function() while true do end end)() end",
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        "while true do pcall(coroutine.wrap(function() pcall(function() while true do end end) end)) end",
        "local t = setmetatable({}, {__index = function() while true do end end}) return t.x",
        "return string.find(string.rep('a', 3000), string.rep('a?', 100) .. string.rep('a', 3000) .. 'b')",
        "return string.match(string.rep('a', 50000), '.-.-.-.-.-b')",
        "return string.find(string.rep('x', 60000), string.rep('.*', 20) .. 'y')",
        "return string.gsub(string.rep('(', 50000), '%b()', '')",
        "for i = 1, 1e9 do string.find(string.rep('a', 60000), 'b', 1, true) end",
        "local s = string.rep('a', 200000) for i = 1, 1e9 do local x = s < s end",
        "local s = string.rep(' ', 200000) .. '1' for i = 1, 1e9 do local x = s + 1 end",
        "local s = string.rep(' ', 200000) .. '1' for i = 1, 1e9 do local x = tonumber(s) end",
        "local t = {} for i = 1, 20000 do t[i] = i end for i = 1, 1e9 do table.insert(t, 1, i) end",
        "local t = {} for i = 1, 5000 do t[i] = i % 7 end while true do table.sort(t) end",
        "local t = {} for i = 1, 5000 do t[i] = '' end while true do table.concat(t) end",
        "local t = {1, 2, 3} table.sort(t, function() while true do end end)",
        "while true do redis.call('ping') end",
        "while true do redis.pcall('nosuch') end",
        "local t = {} t[1] = t while true do pcall(cjson.encode, t) end",
        "while true do pcall(cjson.decode, string.rep('[', 20000)) end",
        "while true do redis.sha1hex(string.rep('a', 200000)) end",
        "for i = 1, 1e9 do string.rep('', 1e9) end",
    ] {
        let reply = ends(source);
        let is_ended = ["Script killed", "not enough memory", "stack overflow", "pattern too complex"];
        assert!(is_ended.iter().any(|end| reply.contains(end)), "{source}: {reply}");
        assert!(reply.starts_with("-ERR "), "{reply}");
    }
}

#[test]
fn too_much_memory_ends_a_script() {
    for source in [
        "local s = 'x' while true do s = s .. s end",
        "local t = {} while true do t[#t + 1] = string.rep('x', 10000) end",
        "local t = {} for i = 1, 1e9 do t[i] = {} end",
        "return string.rep('x', 1e9)",
        "return string.rep('x', 2 ^ 60)",
        "return string.rep('x', 1 / 0)",
        "return string.gsub(string.rep('x', 200000), 'x', string.rep('y', 100000))",
        "local t = {} for i = 1, 200 do t[i] = string.rep('x', 200000) end return table.concat(t)",
        "while true do pcall(function() local s = 'x' while true do s = s .. s end end) end",
        "local function f(...) return f(1, 2, 3, 4, 5, 6, 7, 8, ...) end return f()",
        "local function f() return 1 + f() end return f()",
        "local f = function() end for i = 1, 1e9 do local g = f f = function() return g end end",
        "return unpack({}, 1, 1e8)",
        "return {string.byte(string.rep('x', 200000), 1, -1)}",
        "return string.rep('x', 61441)",
        "local t = {} for i = 1, 20000 do t[i] = 1 end return t",
        "local t = {} t[1] = t return t",
        "local t = {} for i = 1, 9 do t[i] = t end return t",
        "return string.format('%99999d', 1)",
        "return ('x'):rep(200000):gsub('.', {x = ('y'):rep(200000)})",
        "return string.match('x', string.rep('(', 100))",
        "return string.match(string.rep('a', 1000), string.rep('a-', 1000) .. 'b')",
        "return loadstring",
    ] {
        let reply = ends(source);
        assert!(reply.starts_with("-ERR "), "{source}: {reply}");
        assert!(reply.len() < 500, "{reply}");
    }
}

#[test]
fn functions_outside_the_sandbox_do_not_exist() {
    for name in [
        "print",
        "load",
        "loadstring",
        "loadfile",
        "dofile",
        "require",
        "module",
        "io",
        "os",
        "debug",
        "package",
        "collectgarbage",
        "newproxy",
        "gcinfo",
        "getfenv",
        "setfenv",
    ] {
        let found = ends(&format!("return {name}"));
        assert!(found.contains(&format!("nonexistent global variable '{name}'")), "{found}");
    }
    for (source, expected) in [
        ("return type(string.dump)", "$3 nil "),
        ("return type(string.gfind)", "$3 nil "),
        ("return type(('').dump)", "$3 nil "),
        ("return tostring(getmetatable(_G))", "$5 false "),
        ("return _G._G == _G", ":1 "),
        ("return tostring({}) .. tostring(tostring)", "$13 tablefunction "),
        ("return pcall(setmetatable, _G, {})", "$-1 "),
        ("return rawget(_G, 'string') == nil", ":1 "),
        ("string.rep = nil return 1", ":1 "),
        ("return type(string.rep)", "$8 function "),
    ] {
        assert_eq!(ends(source), expected, "{source}");
    }
    for source in ["math.random()", "math.randomseed(1)", "return redis.call('hrandfield', 'k')"] {
        assert!(ends(source).starts_with("-ERR "), "{source}");
    }
    let bytecode = run_on(&mut lent(&[]), "\x1bLua", &[]);
    assert!(bytecode.has_failed && bytecode.reply.starts_with(b"-ERR "), "{bytecode:?}");
}

/// No state of a script is visible to the next one, and each gives the same result again.
#[test]
fn scripts_do_not_affect_each_other_and_are_deterministic() {
    let source = "local t = {} for k in pairs({a = 1, b = 2, c = 3, zz = 4, [5] = 6}) do t[#t + 1] = tostring(k) end return t";
    let first = reply(source);
    for _ in 0..20 {
        assert_eq!(reply(source), first);
    }
    let used = |_| reply("local s = '' for i = 1, 1000 do s = s .. i end return #s");
    assert!((0..5).map(used).all(|reply| reply.starts_with(':')), "within the bounds");
}
