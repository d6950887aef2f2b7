//! Random library calls with extreme numbers, texts and tables.
//!
//! `NICEKV_CALLS=1000000 NICEKV_SEED=7 cargo test -p nicekv-scripts --lib fuzz` makes more calls
//! with another seed. A crash ends the test's process, so the seed is printed first.

use super::{lent, run_on};
use std::time::{Duration, Instant};

/// Maximum duration of a program; generous for a busy machine.
const LONGEST: Duration = Duration::from_secs(3);
const CALLS: u64 = 6_000;
const CALLS_PER_PROGRAM: u64 = 24;

const FUNCTIONS: [&str; 62] = [
    "string.rep",
    "string.format",
    "string.find",
    "string.match",
    "string.gmatch",
    "string.gsub",
    "string.upper",
    "string.lower",
    "string.reverse",
    "string.byte",
    "string.char",
    "string.sub",
    "string.len",
    "table.concat",
    "table.insert",
    "table.remove",
    "table.sort",
    "table.maxn",
    "table.foreach",
    "table.foreachi",
    "table.getn",
    "unpack",
    "select",
    "tonumber",
    "tostring",
    "type",
    "next",
    "rawget",
    "rawset",
    "rawequal",
    "setmetatable",
    "getmetatable",
    "ipairs",
    "pairs",
    "assert",
    "error",
    "pcall",
    "xpcall",
    "math.floor",
    "math.fmod",
    "math.ldexp",
    "math.frexp",
    "math.pow",
    "math.max",
    "math.modf",
    "bit.tohex",
    "bit.tobit",
    "bit.lshift",
    "bit.arshift",
    "bit.rol",
    "bit.bswap",
    "bit.band",
    "cjson.encode",
    "cjson.decode",
    "redis.sha1hex",
    "redis.call",
    "redis.pcall",
    "redis.status_reply",
    "redis.error_reply",
    "redis.log",
    "coroutine.wrap",
    "coroutine.resume",
];

const VALUES: [&str; 66] = [
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "0.5",
    "-0.5",
    "127",
    "128",
    "255",
    "256",
    "8000",
    "7999",
    "65536",
    "2^31",
    "2^31-1",
    "2^31+1",
    "-2^31",
    "-2^31-1",
    "-2^31+1",
    "2^32",
    "2^32-1",
    "2^53",
    "-2^53",
    "2^53+1",
    "2^63",
    "-2^63",
    "1e308",
    "-1e308",
    "1e-308",
    "1/0",
    "-1/0",
    "0/0",
    "nil",
    "true",
    "false",
    "''",
    "'a'",
    "'\\0'",
    "'%'",
    "'%s%d%c'",
    "'%99.99f'",
    "'%-99.99g%q'",
    "'[a'",
    "'(()'",
    "'%b'",
    "'%f[%w]'",
    "'^(.-)%1$'",
    "'.-.-.-b'",
    "'0x10'",
    "'1e400'",
    "'set'",
    "'get'",
    "KEYS[1]",
    "'setrange'",
    "'incrbyfloat'",
    "long",
    "digits",
    "list",
    "nested",
    "sparse",
    "odd",
    "itself",
    "print_nothing",
    "redis",
    "string",
];

/// Definitions of the names that values use; `odd` has metamethods that return unexpected values.
const BEGIN: &str = "local long, digits = string.rep('ab', 30000), string.rep('9', 20000) \
local list, nested, sparse, itself = {}, {}, {}, {} \
for i = 1, 300 do list[i] = i % 7 end for i = 1, 60 do nested = {nested} end \
for i = 0, 30 do sparse[2 ^ i] = 1 end itself[1] = itself \
local function print_nothing(...) return ... end \
local odd = setmetatable({}, {__index = function() return -2^31 end, __tostring = function() return {} end, __lt = function() return 0/0 end, \
__concat = function() return nil end, __call = function(...) return ... end, __newindex = function() end, __metatable = 5}) \
local function try(f, ...) pcall(f, ...) end ";

struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.bits() % count as u64) as usize
    }

    fn pick(&mut self, of: &[&'static str]) -> &'static str {
        of[self.below(of.len())]
    }

    fn program(&mut self) -> String {
        let mut source = String::from(BEGIN);
        for _ in 0..CALLS_PER_PROGRAM {
            let function = self.pick(&FUNCTIONS);
            let count = self.below(5);
            let mut values: Vec<_> = (0..count).map(|_| self.pick(&VALUES)).collect();
            // Mostly an argument that passes the function's first check.
            if self.below(3) > 0 && !values.is_empty() {
                values[0] = match function.split_once('.').map_or("", |(library, _)| library) {
                    "string" => self.pick(&["long", "digits", "'a'", "'%99.99f'", "'%s%d'"]),
                    "table" => self.pick(&["list", "{}", "sparse", "odd"]),
                    "" => self.pick(&["list", "sparse", "long", "itself"]),
                    "redis" => self.pick(&["'set'", "'get'", "'setrange'", "long"]),
                    _ => values[0],
                };
            }
            source.push_str(&format!(
                "try({function}{}{}) ",
                if count > 0 { ", " } else { "" },
                values.join(", ")
            ));
        }
        source + "return 'through'"
    }
}

#[test]
fn library_calls_with_extreme_values_end_within_their_bounds() {
    let number = |name: &str, usual| std::env::var(name).map_or(usual, |text| text.parse().expect(name));
    let (calls, seed) = (number("NICEKV_CALLS", CALLS), number("NICEKV_SEED", 1));
    println!("replay with NICEKV_CALLS={calls} NICEKV_SEED={seed}");
    let mut random = Random(seed);
    let (mut through, mut longest) = (0, Duration::ZERO);
    for _ in 0..calls.div_ceil(CALLS_PER_PROGRAM) {
        let program = random.program();
        let mut keys = lent(&["k"]);
        let started = Instant::now();
        let end = run_on(&mut keys, &program, &[]);
        let took = started.elapsed();
        longest = longest.max(took);
        let reply = String::from_utf8_lossy(&end.reply);
        assert!(took < LONGEST, "seed {seed}: {took:?}: {program}");
        assert!(
            reply == "$7\r\nthrough\r\n" || reply.starts_with("-ERR "),
            "seed {seed}: {reply}: {program}"
        );
        through += u64::from(!end.has_failed);
    }
    println!("{through} programs came to their end, the longest took {longest:?}");
    assert!(through > 0, "no program stayed within the bounds");
}
