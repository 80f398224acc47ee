-- Takes from all buckets of each request, or from none; several requests in one call, one after the other.
--
-- KEYS     the subjects, and the keys of sliding logs
-- ARGV[1]  the time in microseconds; 0: this server's clock
-- ARGV[2]  how far the caller's clock may be behind this server's before this server's is taken; one that is ahead is never
--          taken, as that would admit more; -1: it is trusted
-- ARGV[3]  1: charge what passes; 0: only look
-- ARGV[4]  the requests: for each the number of charges (B) and its charges
--          (HH: numbers of the subject's and the log's key; BB: kind, shadow; c8: id; dddd: cost, x, y, z)
-- Returns  the time (d), then for each request whether it passes (B) and for each charge
--          (BB: fit, charged; ddd: when it fits or may go, what remains, when it is full)

local sent, tolerance, charging, blob = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1', ARGV[4]
local now = sent
if sent == 0 or tolerance >= 0 then
  local time = call('TIME')
  local own = time[1] * 1000000 + time[2]
  if sent == 0 or sent > own or own - sent > tolerance then now = own end
end

local subjects, replies, position = {}, { pack('<d', now) }, 1
local length = #blob

-- One charge of the request under way, as it was looked at.
local function look_at(charge, cost)
  local r = charge.record
  local kind, x, y, z = charge.kind, charge.x, charge.y, charge.z
  local at, a, b = as_own(kind, r[1], r[2], r[3])
  if kind == SLIDING_LOG then
    charge.log = open_log(KEYS[charge.log_key], at, a, r[3] == LOG and LOG or 0)
    charge.fit, charge.time, charge.remaining = look_at_log(charge.log, now, cost, x, y)
    charge.empty = charge.log.count > 0 and at + y or 0
  else
    charge.fit, charge.time, charge.remaining, charge.at, charge.a, charge.b = look(kind, at, a, b, now, cost, x, y, z)
    charge.empty = empty_at(kind, at, a, b, x, y, z)
  end
  if cost == 0 then charge.fit = NOW end
end

-- Adds the cost to what was looked at.
local function charge_it(charge)
  local r, cost, kind = charge.record, charge.cost, charge.kind
  if kind == SLIDING_LOG then
    local px = floor((max(now, charge.log.last) + charge.y - now) / 1000) + 1000
    r[1], r[2], r[3], r[4] = charge_log(charge.log, now, cost, charge.y, px)
    charge.empty = r[1] + charge.y
  else
    r[1], r[2], r[3] = charge.at, charge.a + cost * (kind <= LEAKY_BUCKET and UTOK or 1), charge.b
    charge.empty = empty_at(kind, r[1], r[2], r[3], charge.x, charge.y, charge.z)
    r[4] = forget_at(r[1], charge.empty)
  end
  r.changed = true
  charge.remaining = charge.remaining - cost
  charge.subject.dirty = true
end

while position <= length do
  local count
  count, position = unpack_('<B', blob, position)
  local charges, admitted, meet = {}, true, false
  for i = 1, count do
    local c = {}
    local key
    key, c.log_key, c.kind, c.shadow, c.id, c.cost, c.x, c.y, c.z, position = unpack_('<HHBBc8dddd', blob, position)
    local subject = subjects[key]
    if not subject then
      subject = open_subject(KEYS[key])
      subjects[key] = subject
    end
    c.subject, c.record = subject, record(subject, c.id, now)
    charges[i] = c
    -- Those before it on the same bucket must fit as well; a shadow never stands in the way of what decides.
    local cost = c.cost
    for j = 1, i - 1 do
      local before = charges[j]
      if before.record == c.record then
        meet = true
        if c.cost > 0 and (c.shadow == 1 or before.shadow == 0) then cost = cost + before.cost end
      end
    end
    look_at(c, cost)
    if c.shadow == 0 and c.fit >= LATER then admitted = false end
  end
  replies[#replies + 1] = pack('<B', admitted and 1 or 0)
  for i = 1, count do
    local c = charges[i]
    local charged = 0
    if charging then
      local passes = admitted and c.fit <= QUEUED
      if passes and meet then
        local fit, time = c.fit, c.time
        look_at(c, c.cost)
        c.fit, c.time = fit, time
      end
      if passes and c.cost > 0 then
        charge_it(c)
        charged = 1
      elseif c.record[1] and c.empty > c.record[4] then
        -- The limit has become a slower one since: not to be forgotten before.
        c.record[4] = forget_at(c.record[1], c.empty)
        c.record.changed = true
        c.subject.dirty = true
      end
    end
    replies[#replies + 1] = pack('<BBddd', c.fit, charged, c.time, c.remaining, max(c.empty, now))
  end
end

for _, subject in pairs(subjects) do
  if subject.dirty then write_subject(subject, now) end
end
return table.concat(replies)
