-- Takes from all buckets of each request, or from none; several requests in one call, one after the other.
--
-- KEYS     the subjects, and the keys of sliding logs
-- ARGV[1]  1: charge what passes; 0: only look
-- ARGV[2]  the requests: for each the number of charges (B) and its charges
--          (HH: numbers of the subject's and the log's key; BB: kind, shadow; c8: id; dddd: cost, x, y, z)
-- ARGV[3]  the time in microseconds, and ARGV[4] its tolerance, if it is not this server's: see piece/time.lua
-- Returns  the time (d), then for each request whether it passes (B) and for each charge
--          (BB: fit, charged; ddd: when it fits or may go, what remains, when it is full)

--[names]
local now
--[level]
--[record]
--[subject]
--[arithmetic]
local sent, tolerance = ARGV[3], ARGV[4]
--[time]
local charging, blob = ARGV[1] == '1', ARGV[2]

local replies, said, position, length = { pack('<d', now) }, 1, 1, #blob

-- The charges of the request under way, a list per field; used again by the next request.
local rs, log_keys, kinds, shadows, costs, xs, ys, zs = {}, {}, {}, {}, {}, {}, {}, {}
local fits, times, lefts, ats, as, bs, logs, empties = {}, {}, {}, {}, {}, {}, {}, {}

local function look_at(i, cost)
  local r, kind, x, y, z = rs[i], kinds[i], xs[i], ys[i], zs[i]
  local at, a, b = r[1], r[2], r[3]
  at, a, b = as_own(kind, at, a, b)
  if kind == SLIDING_LOG then
    local log = open_log(KEYS[log_keys[i]], at, a, r[1] and r[3] == LOG and LOG or 0)
    logs[i], ats[i] = log, at
    fits[i], times[i], lefts[i] = look_at_log(log, now, cost, x, y)
  else
    fits[i], times[i], lefts[i], ats[i], as[i], bs[i] = look(kind, at, a, b, cost, x, y, z)
  end
  if cost == 0 then fits[i] = NOW end
end

-- From when on the bucket says nothing, if it is not charged.
local function empty_of(i)
  local r, kind = rs[i], kinds[i]
  local at, a, b = as_own(kind, r[1], r[2], r[3])
  if kind == SLIDING_LOG then return logs[i].count > 0 and at + ys[i] or 0 end
  return empty_at(kind, at, a, b, xs[i], ys[i], zs[i])
end

-- Adds the cost to what was looked at. Returns from when on it says nothing.
local function charge_it(i)
  local r, cost, kind, x, y = rs[i], costs[i], kinds[i], xs[i], ys[i]
  r[7] = true
  lefts[i] = lefts[i] - cost
  if kind == SLIDING_LOG then
    local log = logs[i]
    local px = floor((max(now, log.last) + y - now) / 1000) + 1000
    r[1], r[2], r[3], r[4] = charge_log(log, now, cost, y, px)
    return r[1] + y
  end
  local at, a, b = ats[i], as[i] + cost * (kind <= LEAKY_BUCKET and UTOK or 1), bs[i]
  r[1], r[2], r[3] = at, a, b
  local empty = empty_at(kind, at, a, b, x, y, zs[i])
  r[4] = empty
  return empty
end

while position <= length do
  local count
  count, position = unpack_('<B', blob, position)
  local admitted, meet = true, false
  for i = 1, count do
    local key, id
    key, log_keys[i], kinds[i], shadows[i], id, costs[i], xs[i], ys[i], zs[i], position =
      unpack_('<HHBBc8dddd', blob, position)
    local r = records[key]
    while r and r[5] ~= id do r = r[8] end
    r = r or read_record(key, id)
    rs[i] = r
    -- Those before it on the same bucket must fit as well; a shadow never stands in the way of what decides.
    local cost, shadow = costs[i], shadows[i]
    for j = 1, i - 1 do
      if rs[j] == r then
        meet = true
        if costs[i] > 0 and (shadow == 1 or shadows[j] == 0) then cost = cost + costs[j] end
      end
    end
    look_at(i, cost)
    if shadow == 0 and fits[i] >= LATER then admitted = false end
  end
  if meet then
    -- As it was before any of them was charged.
    for i = 1, count do empties[i] = empty_of(i) end
  end
  for i = 1, count do
    local charged, empty, r = 0, nil, rs[i]
    local fit, time = fits[i], times[i]
    if charging then
      local passes = admitted and fit <= QUEUED
      if passes and meet then
        look_at(i, costs[i])
        empties[i] = empty_of(i)
      end
      if passes and costs[i] > 0 then
        empty = charge_it(i)
        charged = 1
      else
        empty = meet and empties[i] or empty_of(i)
        if r[1] and empty > forget_at(r[1], r[4]) then
          -- The limit has become a slower one since: not to be forgotten before.
          r[4], r[7] = empty, true
        end
      end
    else
      empty = meet and empties[i] or empty_of(i)
    end
    if empty < now then empty = now end
    said = said + 1
    if i == 1 then
      replies[said] = pack('<BBBddd', admitted and 1 or 0, fit, charged, time, lefts[i], empty)
    else
      replies[said] = pack('<BBddd', fit, charged, time, lefts[i], empty)
    end
  end
  if count == 0 then
    said = said + 1
    replies[said] = pack('<B', 1)
  end
end

for key, first in pairs(records) do
  local r, dirty = first, false
  while r do
    dirty = dirty or r[7]
    r = r[8]
  end
  if dirty then write_back(key, first) end
end
return table.concat(replies)
