-- What a bucket's record says. Every number is a double, and a whole one below 2^53.
--
-- A bucket is a record of 40 bytes: id (8 bytes), at, a, b, e (doubles).
--   at  when the state was true, in microseconds     e  from when on it says nothing: then it is as good as not there
--   level (token and leaky bucket):  a = microtokens used,  b = LEVEL
--   level of a token bucket:         a = microtokens used,  b = RATED - x,  e = y: it drains by x microtokens every y microseconds
--                                    (as tokens.lua and single.lua write it)
--   fixed window:                    a = tokens used,       b = WINDOW
--   sliding counter:                 a = this window,       b = the window before (>= 0)
--   sliding log:                     a = tokens used,       b = LOG; the entries lie in a key of their own
-- A limit is (kind, x, y, z): buckets x microtokens every y microseconds, z tokens; windows x tokens every y microseconds.
-- What is used stays used when the limit changes; another algorithm takes the amount over (`as_own`).

local LEVEL, WINDOW, LOG, RATED = -1, -2, -3, -4
local TOKEN_BUCKET, LEAKY_BUCKET, FIXED_WINDOW, SLIDING_LOG, SLIDING_COUNTER = 0, 1, 2, 3, 4
local NOW, QUEUED, LATER, NEVER = 0, 1, 2, 3
local CENTURY = 36525 * 86400 * 1000000
local MOST_COUNT = 4000000000
local ENTRY = 16
local floor, max, min = math.floor, math.max, math.min
local pack, unpack_ = struct.pack, struct.unpack

local function ceil_div(n, d)
  local q = floor(n / d)
  if q * d < n then return q + 1 end
  return q
end

-- Microseconds until so many microtokens have drained, rounded up.
local function us_to_drain(utok, x, y)
  if y == 1 then
    return min(ceil_div(utok, x), CENTURY)
  end
  local whole = floor(utok / x)
  local rest = utok - whole * x
  return min(whole * y + ceil_div(rest * y, x), CENTURY)
end

-- The time to forget a state at that says nothing from `empty` on: the span rounded up to five digits of two, as the memory store keeps it.
local function forget_at(at, empty)
  local span = empty - at
  if span < 16 then return at + max(span, 0) end
  local _, exponent = math.frexp(span)
  local unit = math.ldexp(1, exponent - 5)
  return at + math.ceil(span / unit) * unit
end

-- Whole tokens used, whatever the form.
local function used(a, b)
  if b == LEVEL then
    return ceil_div(a, UTOK)
  elseif b >= 0 then
    return a + b
  end
  return a
end

