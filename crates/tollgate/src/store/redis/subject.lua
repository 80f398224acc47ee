-- The subjects of a call: each read once, changed here, and written back at once. A subject is a string of records.

-- The time of the call, in microseconds; set by the script that follows.
local now
local find, sub = string.find, string.sub

-- What is past is kept for so long, so that a clock that goes back a little finds it again.
local GRACE = 10000000

-- By number of the key: the value as it came, and the records that were asked for, the last one first. Lists rather than
-- tables with names, as those cost five times as much to make:
-- { at, a, b, e, id, place in the value or 0, whether it was changed, the next record, whether `e` is still to be rounded }.
-- `at` is false where there is none, or it says nothing any more.
local values, records = {}, {}

local function read_record(key, id)
  local value = values[key]
  if not value then
    value = call('GET', KEYS[key]) or ''
    values[key] = value
  end
  local place = 1
  if value ~= '' then
    local first_id, at, a, b, e = unpack_('<c8dddd', value, 1)
    if first_id ~= id then
      place = find(value, id, 41, true)
      while place and (place - 1) % RECORD ~= 0 do
        place = find(value, id, place + 1, true)
      end
      if place then at, a, b, e = unpack_('<dddd', value, place + 8) end
    end
    if place then
      local r
      if e > now and not (a == 0 and b == LEVEL) then
        r = { at, a, b, e, id, place, false, records[key], false }
      else
        r = { false, 0, 0, 0, id, place, false, records[key], false }
      end
      records[key] = r
      return r
    end
  end
  local r = { false, 0, 0, 0, id, 0, false, records[key], false }
  records[key] = r
  return r
end

-- Writes a subject back without what says nothing any more. It expires a second after the last of it does.
local function write_back(key, first)
  local value = values[key]
  local past = now - GRACE
  local latest, parts = 0, {}
  for place = 1, #value, RECORD do
    local r = first
    while r and r[6] ~= place do r = r[8] end
    local part, e
    if r and r[7] then
      e = r[4]
      if r[1] and e > past then part = pack('<c8dddd', r[5], r[1], r[2], r[3], e) end
    else
      e = unpack_('<d', value, place + 32)
      if e > past then part = sub(value, place, place + RECORD - 1) end
    end
    if part then
      if e > latest then latest = e end
      parts[#parts + 1] = part
    end
  end
  local r = first
  while r do
    if r[7] and r[6] == 0 and r[1] and r[4] > past then
      if r[4] > latest then latest = r[4] end
      parts[#parts + 1] = pack('<c8dddd', r[5], r[1], r[2], r[3], r[4])
    end
    r = r[8]
  end
  if #parts == 0 then
    call('DEL', KEYS[key])
    return
  end
  local whole = #parts == 1 and parts[1] or table.concat(parts)
  local left = (latest - now) / 1000
  left = left - left % 1
  if left < 0 then left = 0 end
  call('SET', KEYS[key], whole, 'PX', left + 1000)
end

