-- The five algorithms, as in src/algorithm, over records.

-- Rounded down, and what is left over: n * m / d, for n < 2^35 and m, d < 2^45. The product would not fit, so seven bits at a time.
local function muldiv(n, m, d)
  local q, r, unit = 0, 0, 268435456
  for _ = 1, 5 do
    local digit = floor(n / unit)
    n = n - digit * unit
    local t = r * 128 + digit * m
    local whole = floor(t / d)
    q, r = q * 128 + whole, t - whole * d
    unit = unit / 128
  end
  return q, r
end

-- A state in the form that this kind keeps. (A log's entries are seen to elsewhere.)
local function as_own(kind, at, a, b)
  if not at then
    return 0, 0, kind <= LEAKY_BUCKET and LEVEL or kind == SLIDING_COUNTER and 0 or kind == FIXED_WINDOW and WINDOW or LOG
  elseif kind <= LEAKY_BUCKET then
    if b == LEVEL then return at, a, b end
    local n = used(a, b)
    return n > 0 and at or 0, n * UTOK, LEVEL
  elseif kind == SLIDING_COUNTER then
    if b >= 0 then return at, a, b end
    local n = used(a, b)
    return n > 0 and at or 0, min(n, MOST_COUNT), 0
  end
  local own = kind == FIXED_WINDOW and WINDOW or LOG
  if b == own then return at, a, b end
  local n = used(a, b)
  return n > 0 and at or 0, n, own
end

-- From when on a state of this kind's own form says nothing.
local function empty_at(kind, at, a, b, x, y, z)
  if kind == TOKEN_BUCKET then
    return at + us_to_drain(min(a, full(x, y, z)), x, y)
  elseif kind == LEAKY_BUCKET then
    return at + us_to_drain(a, x, y)
  elseif kind == FIXED_WINDOW then
    return a > 0 and at - at % y + y or 0
  end
  local windows = a > 0 and 2 or b > 0 and 1 or 0
  return at - at % y + windows * y
end

-- How long before the end of a window so many requests of the window before weigh no more than `room`.
local function covered(count, room, y)
  if count == 0 then return y end
  local us = muldiv(room, y, count)
  return min(us, y)
end

-- What a limit says: fit, its time, what remains, and the state at `now` to which a charge is added. Not for logs.
local function look(kind, at, a, b, cost, x, y, z)
  if kind <= LEAKY_BUCKET then
    if kind == TOKEN_BUCKET then
      a = min(a, full(x, y, z))
    end
    local part
    at, a, part = drained(at, a, x, y)
    local remaining = floor(max(z * UTOK + part - a, 0) / UTOK)
    if cost > z then
      return NEVER, 0, remaining, at, a, LEVEL
    elseif cost > remaining then
      return LATER, at + us_to_drain(max(a - (z - cost) * UTOK, 0), x, y), remaining, at, a, LEVEL
    elseif kind == LEAKY_BUCKET and a > 0 and cost > 0 then
      return QUEUED, at + us_to_drain(a, x, y), remaining, at, a, LEVEL
    end
    return NOW, 0, remaining, at, a, LEVEL
  end
  local time = max(now, at)
  local start = time - time % y
  if kind == FIXED_WINDOW then
    if at < start then a = 0 end
    local remaining = max(x - a, 0)
    if cost > x then
      return NEVER, 0, remaining, time, a, WINDOW
    elseif cost > remaining then
      return LATER, start + y, remaining, time, a, WINDOW
    end
    return NOW, 0, remaining, time, a, WINDOW
  end
  local passed = start - (at - at % y)
  if passed == y then
    a, b = 0, a
  elseif passed ~= 0 then
    a, b = 0, 0
  end
  local weight, rest = muldiv(b, y - time % y, y)
  local remaining = max(x - a - weight - (rest > 0 and 1 or 0), 0)
  if cost > x then
    return NEVER, 0, remaining, time, a, b
  elseif cost > remaining then
    local ready
    if a + cost <= x then
      ready = start + y - covered(b, x - a - cost, y)
    else
      ready = start + 2 * y - covered(a, x - cost, y)
    end
    return LATER, ready, remaining, time, a, b
  end
  return NOW, 0, remaining, time, a, b
end

-- A sliding log: a string of entries (when, running total), oldest first, behind a head (running total before the first).
-- Expired entries are cut off now and then; every sum is a difference of two totals, every question a binary search.
local function open_log(key, at, a, b)
  local log = { key = key, last = at, used = a, count = 0, base = 0, exists = false }
  if b == LOG then
    local length = of_string('STRLEN', key)
    if length and length >= 2 * ENTRY and length % ENTRY == 0 then
      log.exists = true
      log.count = length / ENTRY - 1
      log.base = unpack_('<d', call('GETRANGE', key, 0, 7))
    end
  end
  if not log.exists and a > 0 then
    -- Taken over from another form: one entry.
    log.count, log.only = 1, { at, a }
  end
  return log
end

local function entry(log, i)
  if log.only then
    return log.only[1], log.only[2]
  end
  return unpack_('<dd', call('GETRANGE', log.key, ENTRY * i, ENTRY * i + ENTRY - 1))
end

local function total_before(log, i)
  if i == 1 then return log.base end
  local _, total = entry(log, i - 1)
  return total
end

-- The first entry for which `test` holds, of those that lie in order; one past the end if none does.
local function first(log, test)
  local low, high = 1, log.count + 1
  while low < high do
    local middle = floor((low + high) / 2)
    if test(entry(log, middle)) then high = middle else low = middle + 1 end
  end
  return low
end

local function look_at_log(log, now, cost, x, y)
  now = max(now, log.last)
  local total = total_before(log, log.count + 1)
  local live = first(log, function(at) return at + y > now end)
  -- What was out of the window at the last charge stays out, also of a longer one.
  local before = max(total_before(log, live), total - log.used)
  local remaining = max(x - (total - before), 0)
  log.total, log.live, log.before = total, live, before
  if cost > x then
    return NEVER, 0, remaining
  elseif cost > remaining then
    local needed = max(total + cost - x, 0)
    local i = first(log, function(_, sum) return sum >= needed end)
    local at = now
    if i <= log.count then at = entry(log, i) end
    return LATER, at + y, remaining
  end
  return NOW, 0, remaining
end

-- Adds to a log that was just looked at. Returns its record: at, a, b, e.
local function charge_log(log, now, cost, y, px)
  now = max(now, log.last)
  local total = log.total + cost
  local new = pack('<dd', now, total)
  local key = log.key
  if not log.exists or log.live > log.count then
    local keep = ''
    if log.only and log.live <= log.count then
      if log.only[1] == now then
        log.before = 0
      else
        keep = pack('<dd', log.only[1], log.only[2])
      end
    end
    call('SET', key, pack('<dd', keep == '' and log.before or 0, 0) .. keep .. new, 'PX', px)
  else
    local last = entry(log, log.count)
    if last == now then
      call('SETRANGE', key, ENTRY * log.count, new)
    elseif log.live > 64 and log.live * 2 > log.count then
      local rest = call('GETRANGE', key, ENTRY * log.live, -1)
      call('SET', key, pack('<dd', log.before, 0) .. rest .. new, 'PX', px)
    else
      call('APPEND', key, new)
    end
    call('PEXPIRE', key, px)
  end
  return now, total - log.before, LOG, now + y
end

