-- Takes from token buckets: from all of each request, or from none; several requests in one call, one after the other.
--
-- It does what take.lua does, for what most requests are, at half of the cost: it says only whether a request passes and what it found, and
-- the caller works out the rest.
--
-- KEYS     the subjects
-- ARGV[1]  how many of the subjects several requests meet (H), which then are the first;
--          how many limits (H) and the limits (ddd: x, y, z);
--          how many shapes (H) and the shapes, which is what requests are alike in: how many tiers (B), and each tier
--          (BHB: which of the request's subjects, number of the limit, whether it is a shadow; d: id, which is a
--          number here as that is faster; d: cost), those of one subject side by side;
--          and the requests (HHHHH: number of the shape, numbers of its subjects, 0 where there are fewer than four)
-- ARGV[2]  the time in microseconds, and ARGV[3] its tolerance, if it is not this server's: see piece/time.lua
-- Returns  the time (d), then for each request whether it passes (B) and for each tier the level as it was found (dd: at, a)

--[names]
local now
--[level]
--[seldom]
local sent, tolerance = ARGV[2], ARGV[3]
--[time]
local pack, unpack_ = struct.pack, struct.unpack
local RATED, FIRST, RECORD = -4, 5, 40
local blob = ARGV[1]

-- { x, y, room, level when full, mark of records under it, microseconds that a microtoken takes and a sixteenth for `forget_at` }
local limits, met_again, limit_count, position = {}, unpack_('<HH', blob)
for i = 1, limit_count do
  local x, y, z
  x, y, z, position = unpack_('<ddd', blob, position)
  limits[i] = { x, y, z * UTOK, full(x, y, z), RATED - x, y / x * 17 / 16 }
end

-- { tiers, how many, the first of each subject and behind the last of all, format of the answer }
-- A tier: { slot of its subject, limit, whether it is a shadow, id, cost in microtokens }
local shapes, shape_count = {}, nil
shape_count, position = unpack_('<H', blob, position)
for shape = 1, shape_count do
  local tiers, groups, slot_before, count = {}, {}, 0, nil
  count, position = unpack_('<B', blob, position)
  for i = 1, count do
    local slot, limit, shadow, id, cost
    slot, limit, shadow, id, cost, position = unpack_('<BHBdd', blob, position)
    tiers[i] = { slot, limits[limit], shadow, id, cost * UTOK }
    if slot ~= slot_before then groups[#groups + 1] = i end
    slot_before = slot
  end
  groups[#groups + 1] = count + 1
  shapes[shape] = { tiers, count, groups, 'B' .. string.rep('dd', count) }
end

local values = call('MGET', unpack(KEYS))
for i = 1, #KEYS do
  -- What nobody here wrote counts as nothing, and is written over. (What is no string comes as nothing.)
  local value = values[i]
  if value and #value ~= 44 and (#value < 44 or #value % RECORD ~= 4) then values[i] = false end
end
-- By subject: what is to be written, and how many milliseconds it lives if that is to be set.
local changed, lefts = {}, {}
-- By subject that is met again and has one record: { at, a, limit, head, id }. It is packed when all is done, or when it is met in
-- another way.
local states = {}

local function pack_state(subject)
  local state = states[subject]
  local at, a, limit = state[1], state[2], state[3]
  local value = pack('<I4ddddd', state[4], state[5], at, a, limit[5], limit[2])
  values[subject], changed[subject], states[subject] = value, value, nil
  return value
end

-- The tiers of the request under way; used again by the next one. `as` is what is used with the cost, or -1 if that does not fit.
local subjects, ats, as, olds, lives = { 0, 0, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 }, {}, { 0, 0, 0, 0 }

-- What is seldom needed is made when it is.
local read_slowly, change_slowly

-- The answers to all requests, and their formats: packed at once, as each by itself would cost as much.
local said, said_count, formats, request = { now }, 1, { '<d' }, 1
local length = #blob
while position <= length do
  local shape
  shape, subjects[1], subjects[2], subjects[3], subjects[4], position = unpack_('<HHHHH', blob, position)
  shape = shapes[shape]
  local tiers, count, groups = shape[1], shape[2], shape[3]
  local admitted, is_usual, slot_before, place = true, true, 0, 0
  local passes = said_count + 1
  said_count = passes
  for i = 1, count do
    local tier = tiers[i]
    local slot, limit = tier[1], tier[2]
    local subject, x, y = subjects[slot], limit[1], limit[2]
    local value, at, a = values[subject], 0, 0
    local state = states[subject]
    if state and (state[3] ~= limit or state[5] ~= tier[4]) then value, state = pack_state(subject), nil end
    if state then
      place, at, a, lives[slot] = FIRST, state[1], state[2], state[4]
    elseif value then
      -- Behind the one before is where it mostly is.
      local id, there, b, e = tier[4], nil, nil, nil
      if slot ~= slot_before then
        place = FIRST
        lives[slot], there, at, a, b, e = unpack_('<I4ddddd', value)
      else
        place = place + RECORD
        if place < #value then there, at, a, b, e = unpack_('<ddddd', value, place) end
      end
      if there ~= id or b ~= limit[5] or e ~= y or not (at < 9007199254740992) then
        is_usual = false
        if not read_slowly then read_slowly, change_slowly = seldom(now, values, changed, lefts, ats, as, olds) end
        at, a, place = read_slowly(value, i, id)
      end
    else
      is_usual = false
    end
    slot_before = slot
    said[said_count + 1], said[said_count + 2] = at, a
    said_count = said_count + 2
    local part
    at, a, part = drained(at, a < limit[4] and a or limit[4], x, y)
    local cost = tier[5]
    a = a + cost
    if cost == 0 then
      is_usual = false
    elseif a > limit[3] + part then
      a, is_usual = -1, false
      if tier[3] == 0 then admitted = false end
    end
    ats[i], as[i] = at, a
  end
  said[passes] = admitted and 1 or 0
  request = request + 1
  formats[request] = shape[4]
  local group, first = 1, 1
  while first <= count do
    group = group + 1
    local next_first, tier = groups[group], tiers[first]
    local slot = tier[1]
    local subject, new, is_done = subjects[slot], nil, false
    if is_usual then
      local limit, at, a, head, size = tier[2], ats[first], as[first], lives[slot], #values[subject]
      local latest = at + a * limit[6]
      if size == 44 then
        if latest > head * UTOK then head, lefts[subject] = life_until(latest) end
        if subject <= met_again then
          local state = states[subject]
          if state then
            state[1], state[2], state[4] = at, a, head
          else
            states[subject] = { at, a, limit, head, tier[4] }
          end
          is_done = true
        else
          new = pack('<I4ddddd', head, tier[4], at, a, limit[5], limit[2])
        end
      elseif size == 84 and next_first == first + 2 then
        local other = tiers[first + 1]
        local other_limit, other_at, other_a = other[2], ats[first + 1], as[first + 1]
        local other_latest = other_at + other_a * other_limit[6]
        if other_latest > latest then latest = other_latest end
        if latest > head * UTOK then head, lefts[subject] = life_until(latest) end
        new = pack('<I4dddddddddd', head, tier[4], at, a, limit[5], limit[2],
          other[4], other_at, other_a, other_limit[5], other_limit[2])
      end
    end
    if new then
      values[subject], changed[subject] = new, new
    elseif not is_done then
      if states[subject] then pack_state(subject) end
      if not read_slowly then read_slowly, change_slowly = seldom(now, values, changed, lefts, ats, as, olds) end
      change_slowly(subject, tiers, first, next_first - 1, admitted)
    end
    first = next_first
  end
end

for subject in pairs(states) do pack_state(subject) end
for subject = 1, #KEYS do
  local value, left = changed[subject], lefts[subject]
  if left then
    call('SET', KEYS[subject], value, 'PX', left)
  elseif value then
    -- Never shorter than it was. In place, which also keeps the expiry; SET would make a new value, and a status to answer with.
    call('SETRANGE', KEYS[subject], '0', value)
  end
end
return pack(table.concat(formats), unpack(said))
