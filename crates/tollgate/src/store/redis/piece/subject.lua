-- The subjects of a call: each read once, changed here, and written back at once.
--
-- A subject is a string: a head of 4 bytes, the second of the Unix epoch until which it lives at the least, and behind it a record for
-- each bucket (see record.lua). The head saves most writes from setting an expiry, which costs more than all the rest of a write.

local find, sub = string.find, string.sub

local HEAD, RECORD, EMPTY = 4, 40, '\0\0\0\0'
local EXACT = 9007199254740992
-- What is past is kept for so long, so that a clock that goes back a little finds it again.
local GRACE = 10000000

-- What a command for one string says; nothing, if there is none under its key but something that nobody here wrote.
local function of_string(command, key)
  local said = redis.pcall(command, key)
  if type(said) ~= 'table' then return said end
  if sub(said.err, 1, 9) == 'WRONGTYPE' then return false end
  return call(command, key)
end

-- What lies under a subject's key. What cannot be ours counts as nothing, and is written over.
local function value_of(key)
  local value = of_string('GET', key)
  return value and #value % RECORD == HEAD and value or EMPTY
end

-- Where a record begins, or nil.
local function place_of(value, id)
  local place = find(value, id, HEAD + 1, true)
  while place and (place - HEAD - 1) % RECORD ~= 0 do
    place = find(value, id, place + 1, true)
  end
  return place
end

-- A record as the algorithms take it: at, a, b, and e from when on it says nothing.
local function record_at(value, place)
  local at, a, b, e = unpack_('<dddd', value, place + 8)
  if b <= RATED then return at, a, LEVEL, at + us_to_drain(a, RATED - b, e) end
  return at, a, b, e
end

-- Whether a record still says something. What is beyond exact numbers, or none, is not ours.
local function is_live(at, a, b, e)
  return at >= 0 and at < EXACT and a >= 0 and a < EXACT
    and not (a == 0 and b == LEVEL) and (e > now or forget_at(at, e) > now)
end

-- By number of the key: the value, and the records that were asked for, the last one first. Lists rather than tables with names, as
-- those cost five times as much to make: { at, a, b, e, id, place in the value or 0, whether it was changed, the next record }.
-- `at` is false where there is none, or it says nothing any more.
local values, records = {}, {}

local function read_record(key, id)
  local value = values[key]
  if not value then
    value = value_of(KEYS[key])
    values[key] = value
  end
  local r = { false, 0, 0, 0, id, 0, false, records[key] }
  local place = place_of(value, id)
  if place then
    r[6] = place
    local at, a, b, e = record_at(value, place)
    if is_live(at, a, b, e) then r[1], r[2], r[3], r[4] = at, a, b, e end
  end
  records[key] = r
  return r
end

-- A subject with one more record, or with one in the place of another.
local function with_record(value, place, record)
  if place == 0 then return value .. record end
  return sub(value, 1, place - 1) .. record .. sub(value, place + RECORD)
end

-- A subject without what says nothing any more, and how many milliseconds it lives. Nothing, if nothing is left.
local function cleaned(value)
  local past, latest, parts = now - GRACE, 0, { '' }
  for place = HEAD + 1, #value, RECORD do
    local at, _, _, e = record_at(value, place)
    local last = forget_at(at, e)
    if at >= 0 and last > past and last < EXACT then
      latest = max(latest, last)
      parts[#parts + 1] = sub(value, place, place + RECORD - 1)
    end
  end
  if #parts == 1 then return nil end
  local head, left = life_until(latest)
  parts[1] = pack('<I4', head)
  return table.concat(parts), left
end

-- Writes a subject back with the records that were changed.
local function write_back(key, first)
  local value, r = values[key], first
  while r do
    if r[7] then
      -- One that is gone says nothing since ever, and is cleaned away.
      local at, a, b, e = r[1] or 0, r[2], r[3], r[1] and r[4] or 0
      value = with_record(value, r[6], pack('<c8dddd', r[5], at, a, b, e))
    end
    r = r[8]
  end
  local left
  value, left = cleaned(value)
  if value then
    call('SET', KEYS[key], value, 'PX', left)
  else
    call('DEL', KEYS[key])
  end
end

