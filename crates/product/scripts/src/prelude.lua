-- What a script finds. It is given what is written in Rust, and returns the script's globals, and who runs it.
local native, KEYS, ARGV = ...
local type, select, tonumber, rawget, rawset, error = type, select, tonumber, rawget, rawset, error
local setmetatable, getmetatable, tostring_of = setmetatable, getmetatable, tostring
local raw_pcall, raw_xpcall = pcall, xpcall
local over, charge, explain = native.over, native.charge, native.explain
local string, table, math, coroutine = string, table, math, coroutine
local concat, insert, remove, sort = table.concat, table.insert, table.remove, table.sort
local raw_unpack, raw_tonumber, next = unpack, tonumber, next
local format, sub, byte = string.format, string.sub, string.byte
local upper, lower, reverse = string.upper, string.lower, string.reverse
-- Shorter strings than this cost no more than the instructions that are about them.
local LONG = 256
-- Most values that a call takes or returns.
local VALUES_MAX = 7000

-- Without addresses, which are other ones each time.
local function tostring(...)
  if select("#", ...) == 0 then error("bad argument #1 to 'tostring' (value expected)", 2) end
  local value = ...
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" or kind == "boolean" or kind == "nil" then return tostring_of(value) end
  local meta = kind == "table" and getmetatable(value)
  local shown = type(meta) == "table" and rawget(meta, "__tostring")
  if shown then return shown(value) end
  return kind
end

-- What a bound has ended nobody goes on after.
local function settle(is_done, ...)
  if over() then native.fail() end
  if is_done then return true, ... end
  local reason = ...
  if type(reason) == "userdata" then reason = explain(reason) end
  return false, reason
end

-- As Redis: of what a command has failed with, the text.
local function plain(is_done, reason, ...)
  if not is_done and type(reason) == "table" and type(rawget(reason, "err")) == "string" then
    return false, rawget(reason, "err")
  end
  return is_done, reason, ...
end

local function pcall(...)
  return plain(settle(raw_pcall(...)))
end

local function xpcall(body, handler)
  return settle(raw_xpcall(body, function(reason)
    if over() then return reason end
    if type(reason) == "userdata" then reason = explain(reason) end
    return handler(reason)
  end))
end

local raw_resume, create, yield = coroutine.resume, coroutine.create, coroutine.yield

local function resume(...)
  return settle(raw_resume(...))
end

local function passed(is_done, ...)
  if is_done then return ... end
  error((...), 0)
end

local function wrap(body)
  local routine = create(body)
  return function(...) return passed(resume(routine, ...)) end
end

-- Patterns.
local function text_of(value, place, name)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" then return tostring_of(value) end
  local got = value == nil and "no value" or kind
  error("bad argument #" .. place .. " to '" .. name .. "' (string expected, got " .. got .. ")", 3)
end

local function from(init, length)
  init = tonumber(init) or 1
  if init < 0 then init = length + init + 1 end
  if init < 1 then init = 1 end
  return init
end

local function behind_place(_, _, ...)
  return ...
end

function string.find(text, pattern, init, plain)
  text, pattern = text_of(text, 1, "find"), text_of(pattern, 2, "find")
  init = from(init, #text)
  if init > #text + 1 then return nil end
  return native.find(text, pattern, init, plain and true or false)
end

function string.match(text, pattern, init)
  text, pattern = text_of(text, 1, "match"), text_of(pattern, 2, "match")
  init = from(init, #text)
  if init > #text + 1 then return nil end
  return behind_place(native.search(text, pattern, init))
end

function string.gmatch(text, pattern)
  text, pattern = text_of(text, 1, "gmatch"), text_of(pattern, 2, "gmatch")
  local at = 1
  local function go_on(first, last, ...)
    if first == nil then
      at = #text + 2
      return nil
    end
    at = last + 1
    if last < first then at = at + 1 end
    return ...
  end
  -- Here it is a byte as any other.
  if sub(pattern, 1, 1) == "^" then pattern = "%" .. pattern end
  return function()
    if at > #text + 1 then return nil end
    return go_on(native.search(text, pattern, at))
  end
end

local function substitute(by, kind, whole, first, ...)
  local value
  if kind == "table" then
    value = by[first]
  elseif kind == "function" then
    value = by(first, ...)
  else
    return native.expand(by, whole, first, ...)
  end
  if not value then return whole end
  if type(value) ~= "string" and type(value) ~= "number" then
    error("invalid replacement value (a " .. type(value) .. ")", 0)
  end
  return value
end

function string.gsub(text, pattern, by, most)
  text, pattern = text_of(text, 1, "gsub"), text_of(pattern, 2, "gsub")
  local kind = type(by)
  if kind == "number" then by, kind = tostring_of(by), "string" end
  if kind ~= "string" and kind ~= "table" and kind ~= "function" then
    error("bad argument #3 to 'gsub' (string/function/table expected)", 2)
  end
  local at, count, parts, is_anchored = 1, 0, {}, sub(pattern, 1, 1) == "^"
  most = tonumber(most) or #text + 1
  local function go_on(first, last, ...)
    if first == nil then return false end
    parts[#parts + 1] = sub(text, at, first - 1)
    parts[#parts + 1] = substitute(by, kind, sub(text, first, last), ...)
    count = count + 1
    at = last + 1
    if last < first then
      parts[#parts + 1] = sub(text, at, at)
      at = at + 1
    end
    return true
  end
  while count < most and at <= #text + 1 and go_on(native.search(text, pattern, at)) do
    if is_anchored then break end
  end
  parts[#parts + 1] = sub(text, at)
  charge(#parts)
  return concat(parts), count
end

string.gfind = nil
string.dump = nil
string.rep = native.rep

-- What the library does by itself, in one instruction, is charged by its arguments before it is done.
local function charge_text(text, bytes_per_step)
  if type(text) == "string" and #text > LONG then charge(#text / bytes_per_step) end
end

local function number_of(value, place, name)
  local number = raw_tonumber(value)
  if number then return number end
  local got = value == nil and "no value" or type(value)
  error("bad argument #" .. place .. " to '" .. name .. "' (number expected, got " .. got .. ")", 3)
end

function string.sub(text, first, last)
  text, first = text_of(text, 1, "sub"), number_of(first, 2, "sub")
  if last ~= nil then last = number_of(last, 3, "sub") end
  charge_text(text, 64)
  return sub(text, first, last)
end

function string.upper(text)
  text = text_of(text, 1, "upper")
  charge_text(text, 8)
  return upper(text)
end

function string.lower(text)
  text = text_of(text, 1, "lower")
  charge_text(text, 8)
  return lower(text)
end

function string.reverse(text)
  text = text_of(text, 1, "reverse")
  charge_text(text, 8)
  return reverse(text)
end

function string.byte(text, first, last)
  text, first = text_of(text, 1, "byte"), first == nil and 1 or number_of(first, 2, "byte")
  last = last == nil and first or number_of(last, 3, "byte")
  if last - first >= VALUES_MAX and #text > VALUES_MAX then error("string slice too long", 2) end
  if last ~= first then charge_text(text, 4) end
  return byte(text, first, last)
end

function string.format(...)
  native.charge_format(...)
  local is_done, text = raw_pcall(format, ...)
  if is_done then return text end
  if type(text) == "string" then text = string.gsub(text, "'%?'", "'format'") end
  error(text, 2)
end

local function tonumber(...)
  if select("#", ...) == 0 then error("bad argument #1 to 'tonumber' (value expected)", 2) end
  local value, base = ...
  charge_text(value, 2)
  if base == nil then return raw_tonumber(value) end
  value, base = text_of(value, 1, "tonumber"), number_of(base, 2, "tonumber")
  if not (base >= 2 and base <= 36) then error("bad argument #2 to 'tonumber' (base out of range)", 2) end
  return raw_tonumber(value, base)
end

-- The library makes 32-bit integers of numbers, and counts with them: whoever gives it others has meant none.
local function is_place(number)
  return number > -2147483648 and number < 2147483647
end

local function unpack(list, first, last)
  if type(list) ~= "table" then
    error("bad argument #1 to 'unpack' (table expected, got " .. (list == nil and "no value" or type(list)) .. ")", 2)
  end
  first, last = first == nil and 1 or raw_tonumber(first), last == nil and #list or raw_tonumber(last)
  if not first or not last then error("bad argument to 'unpack' (number expected)", 2) end
  if not (first <= last) then return end
  if not is_place(first) or not is_place(last) or last - first >= VALUES_MAX then
    error("too many results to unpack", 2)
  end
  charge(last - first)
  return raw_unpack(list, first, last)
end

-- What takes long by itself is counted.
function table.concat(list, between, first, last)
  if type(list) ~= "table" then error("bad argument #1 to 'concat' (table expected, got " .. type(list) .. ")", 2) end
  first, last = first == nil and 1 or raw_tonumber(first), last == nil and #list or raw_tonumber(last)
  if not first or not last or not is_place(first) or not is_place(last) then
    error("bad argument to 'concat' (position out of bounds)", 2)
  end
  if last >= first then charge(last - first) end
  local text = concat(list, between, first, last)
  charge_text(text, 16)
  return text
end

function table.insert(list, ...)
  if type(list) == "table" and select("#", ...) == 2 then
    local place = raw_tonumber((...))
    if place then
      if not is_place(place) then error("bad argument #2 to 'insert' (position out of bounds)", 2) end
      if place < #list then charge(#list - place) end
    end
  end
  return insert(list, ...)
end

function table.remove(list, place)
  if type(list) ~= "table" then error("bad argument #1 to 'remove' (table expected, got " .. type(list) .. ")", 2) end
  if place == nil then return remove(list) end
  local number = raw_tonumber(place)
  if number and not is_place(number) then error("bad argument #2 to 'remove' (position out of bounds)", 2) end
  charge(#list)
  return remove(list, place)
end

function table.sort(list, before)
  if type(list) ~= "table" then error("bad argument #1 to 'sort' (table expected, got " .. type(list) .. ")", 2) end
  -- As often as it compares, it may go over two whole strings.
  local bytes = 0
  charge(#list * 20)
  for place = 1, #list do
    local value = rawget(list, place)
    if type(value) == "string" then bytes = bytes + #value end
  end
  charge(bytes * 2)
  return sort(list, before)
end

function table.maxn(list)
  if type(list) ~= "table" then error("bad argument #1 to 'maxn' (table expected, got " .. type(list) .. ")", 2) end
  local most = 0
  for place in next, list do
    if type(place) == "number" and place > most then most = place end
  end
  return most
end

function table.foreach(list, by)
  if type(list) ~= "table" then error("bad argument #1 to 'foreach' (table expected, got " .. type(list) .. ")", 2) end
  for place, value in next, list do
    local result = by(place, value)
    if result ~= nil then return result end
  end
end

function table.foreachi(list, by)
  if type(list) ~= "table" then error("bad argument #1 to 'foreachi' (table expected, got " .. type(list) .. ")", 2) end
  for place = 1, #list do
    local result = by(place, rawget(list, place))
    if result ~= nil then return result end
  end
end

local function no_random()
  error("Scripts have nothing random: math.random is not available", 2)
end
math.random, math.randomseed = no_random, no_random

-- redis.*
local redis = {
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REPL_NONE = 0, REPL_SLAVE = 1, REPL_REPLICA = 1, REPL_AOF = 2, REPL_ALL = 3,
  REDIS_VERSION = "7.0.15", REDIS_VERSION_NUM = 0x0007000f,
  call = native.call,
  pcall = native.pcall,
  sha1hex = native.sha1hex,
}

local function one_text(field, value, ...)
  if select("#", ...) > 0 or type(value) ~= "string" then error("wrong number or type of arguments", 3) end
  return { [field] = value }
end

function redis.status_reply(...) return one_text("ok", ...) end

function redis.error_reply(...)
  local reply = one_text("err", ...)
  local text = reply.err
  -- As Redis: a reason without a code has the code of all.
  if sub(text, 1, 1) == "-" then text = sub(text, 2) end
  if not native.search(text, "^[^ ]+ ", 1) then text = "ERR " .. text end
  reply.err = text
  return reply
end

function redis.log(level, ...)
  if type(level) ~= "number" then error("Argument must be a number (log level).", 2) end
  if select("#", ...) == 0 then error("redis.log() requires two arguments or more.", 2) end
  if level < 0 or level > 3 then error("Invalid log level.", 2) end
end

function redis.setresp(version)
  if version ~= 2 then error("RESP version must be 2.", 2) end
end

function redis.replicate_commands() return true end
function redis.set_repl() end
function redis.breakpoint() return false end
function redis.debug() end

-- Only what is listed is there.
local allowed = {
  KEYS = KEYS, ARGV = ARGV, redis = redis, server = nil, _VERSION = "Lua 5.1",
  string = string, table = table, math = math, bit = native.bit, cjson = native.cjson,
  coroutine = {
    create = create, resume = resume, yield = yield, wrap = wrap,
    status = coroutine.status, running = coroutine.running,
  },
  assert = assert, error = error, getmetatable = getmetatable, ipairs = ipairs, next = next, pairs = pairs,
  pcall = pcall, rawequal = rawequal, rawget = rawget, rawset = rawset, select = select,
  setmetatable = setmetatable, tonumber = tonumber, tostring = tostring, type = type, unpack = unpack,
  xpcall = xpcall,
}

local globals = setmetatable({}, {
  __index = function(_, name)
    local value = allowed[name]
    if value == nil then
      error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end
    return value
  end,
  __newindex = function() error("Attempt to modify a readonly table", 2) end,
  __metatable = false,
})
allowed._G = globals

-- Whether it ended well; what it returned, or why not, and in which line.
local function run(body)
  local line = 0
  local is_done, value = raw_xpcall(body, function(reason)
    if over() then return reason end
    line = native.line()
    if type(reason) == "userdata" then reason = explain(reason) end
    return reason
  end)
  if is_done or over() then return is_done, value end
  if type(value) == "userdata" then value = explain(value) end
  if type(value) == "table" then
    value = rawget(value, "err") or "ERR unknown error"
  else
    value = "ERR " .. tostring(value)
  end
  return false, value, line
end

return globals, run
