-- Gives back what was taken from one bucket, as far as it still counts.
--
-- KEYS[1]  the subject      KEYS[2]  the log's key
-- ARGV[1]  the charge (BB: kind, nothing; c8: id; dddd: cost, x, y, z) and when it was charged (d)
-- ARGV[2]  the time in microseconds, and ARGV[3] its tolerance, if it is not this server's: see piece/time.lua

--[names]
local now
--[level]
--[record]
--[subject]
--[arithmetic]
local sent, tolerance = ARGV[2], ARGV[3]
--[time]
local kind, _, id, cost, x, y, z, charged_at = unpack_('<BBc8ddddd', ARGV[1])
local r = read_record(1, id)
if not r[1] then return 0 end
local at, a, b = as_own(kind, r[1], r[2], r[3])

local function start(time) return time - time % y end

if kind <= LEAKY_BUCKET then
  local elapsed = max(max(now, at) - charged_at, 0)
  local steps = floor(elapsed / y)
  local gone = steps * x + ceil_div((elapsed - steps * y) * x, y)
  a = max(a - max(cost * UTOK - gone, 0), 0)
elseif kind == FIXED_WINDOW then
  if start(charged_at) == start(max(now, at)) then a = max(a - cost, 0) end
elseif kind == SLIDING_COUNTER then
  if start(max(now, at)) - start(at) <= y then
    if start(charged_at) == start(at) then
      a = max(a - cost, 0)
    elseif start(charged_at) + y == start(at) then
      b = max(b - cost, 0)
    end
  end
else
  local log = open_log(KEYS[2], at, a, r[3] == LOG and LOG or 0)
  local i = first(log, function(when) return when >= charged_at end)
  if i > log.count then return 0 end
  local when, sum = entry(log, i)
  local total = total_before(log, log.count + 1)
  -- Only the entry of just that time, and only if it still counts.
  if when ~= charged_at or sum <= total - log.used then return 0 end
  local before = total_before(log, i)
  cost = min(cost, sum - before)
  -- Only this entry and those behind it change. They are read at once: a call for each would hold up the server for seconds.
  local kept, behind = {}, log.only and pack('<dd', when, sum) or call('GETRANGE', KEYS[2], ENTRY * i, -1)
  if i > 1 then at = entry(log, i - 1) end
  for place = 1, #behind, ENTRY do
    local entry_at, entry_total = unpack_('<dd', behind, place)
    entry_total = entry_total - cost
    if not (place == 1 and entry_total == before) then
      kept[#kept + 1] = pack('<dd', entry_at, entry_total)
      at = entry_at
    end
  end
  a = log.used - cost
  if #kept == 0 and i == 1 then
    call('DEL', KEYS[2])
    r[1], r[7] = false, true
    write_back(1, r)
    return 1
  end
  local px = call('PTTL', KEYS[2])
  local ahead = log.only and pack('<dd', 0, 0) or call('GETRANGE', KEYS[2], 0, ENTRY * i - 1)
  call('SET', KEYS[2], ahead .. table.concat(kept), 'PX', max(px, 1000))
  b = LOG
end
r[1], r[2], r[3], r[7] = at, a, b, true
r[4] = kind == SLIDING_LOG and at + y or empty_at(kind, at, a, b, x, y, z)
write_back(1, r)
return 1
