-- Takes from token buckets: from all of each request, or from none; several requests in one call, one after the other.
--
-- It does what take.lua does, for what most requests are, at half of the cost: it says only whether a request passes and what it found, and
-- the caller works out the rest.
--
-- KEYS     the subjects
-- ARGV[1]  the time in microseconds, and ARGV[2] its tolerance: see `time_of`
-- ARGV[3]  how many limits (H) and the limits (ddd: x, y, z);
--          how many shapes (H) and the shapes, which is what requests are alike in: how many tiers (B), and each tier
--          (BHB: which of the request's subjects, number of the limit, whether it is a shadow; c8: id; d: cost), those of one
--          subject side by side;
--          and the requests (HHHHH: number of the shape, numbers of its subjects, 0 where there are fewer than four)
-- Returns  the time (d), then for each request whether it passes (B) and for each tier the level as it was found (dd: at, a)

now = time_of(tonumber(ARGV[1]), tonumber(ARGV[2]))
local FIRST = HEAD + 1
local blob = ARGV[3]

-- By number of the limit; `spans`: microseconds that a microtoken takes, and a sixteenth for rounding (`forget_at`).
local xs, ys, rooms, tops, marks, spans = {}, {}, {}, {}, {}, {}
local limit_count, position = unpack_('<H', blob)
for limit = 1, limit_count do
  local x, y, z
  x, y, z, position = unpack_('<ddd', blob, position)
  local most = (y - 1) * x / y
  xs[limit], ys[limit], rooms[limit] = x, y, z * UTOK
  tops[limit], marks[limit], spans[limit] = z * UTOK + most - most % 1, RATED - x, y / x * 17 / 16
end

local shapes, shape_count = {}, nil
shape_count, position = unpack_('<H', blob, position)
for shape = 1, shape_count do
  local count
  count, position = unpack_('<B', blob, position)
  local slots, limits, shadows, ids, costs = {}, {}, {}, {}, {}
  for i = 1, count do
    local cost
    slots[i], limits[i], shadows[i], ids[i], cost, position = unpack_('<BHBc8d', blob, position)
    costs[i] = cost * UTOK
  end
  shapes[shape] = { count, slots, limits, shadows, ids, costs, '<B' .. string.rep('dd', count) }
end

values = call('MGET', unpack(KEYS))
-- The subjects that changed, and how many milliseconds they live if that is to be set.
local changed, changes, is_changed, lefts = {}, 0, {}, {}

local function change(subject, value)
  values[subject] = value
  if not is_changed[subject] then
    is_changed[subject] = true
    changes = changes + 1
    changed[changes] = subject
  end
end

-- The tiers of the request under way; used again by the next request.
local subjects, found, places, ats, as, fits, olds = {}, {}, {}, {}, {}, {}, {}

-- What is not usual of one subject: a record that is new, or was written under another limit or in another form, or is not charged.
local function change_slowly(subject, first, last, shape, admitted)
  local limits, ids, costs = shape[3], shape[5], shape[6]
  local value = values[subject] or EMPTY
  local latest, is_any = 0, false
  for i = first, last do
    local limit, old, part = limits[i], olds[i], nil
    if admitted and fits[i] and costs[i] > 0 then
      part = pack('<c8dddd', ids[i], ats[i], as[i], marks[limit], ys[limit])
      latest = max(latest, ats[i] + as[i] * spans[limit])
    elseif old then
      -- The limit may have become a slower one since: not to be forgotten before.
      local x, y, at, a = xs[limit], ys[limit], found[i + i - 1], found[i + i]
      local empty = at + us_to_drain(min(a, tops[limit]), x, y)
      if empty > forget_at(old[1], old[4]) then
        part = pack('<c8dddd', ids[i], old[1], old[2], old[3], empty)
        latest = max(latest, forget_at(old[1], empty))
      end
    end
    if part then
      value, is_any = with_record(value, places[i], part), true
    end
  end
  if is_any then
    if latest > unpack_('<I4', value) * UTOK then
      value, lefts[subject] = cleaned(value)
    end
    change(subject, value)
  end
end

local replies, replied, length = { pack('<d', now) }, 1, #blob
while position <= length do
  local number
  number, subjects[1], subjects[2], subjects[3], subjects[4], position = unpack_('<HHHHH', blob, position)
  local shape = shapes[number]
  local count, slots, limits, shadows, ids, costs = shape[1], shape[2], shape[3], shape[4], shape[5], shape[6]
  local admitted, is_usual, place, slot_before = true, true, 0, 0
  for i = 1, count do
    local slot, limit, id = slots[i], limits[i], ids[i]
    local value, x, y = values[subjects[slot]], xs[limit], ys[limit]
    local at, a = 0, 0
    olds[i] = nil
    if value then
      -- Behind the one before is where it mostly is.
      if slot == slot_before and place > 0 then place = place + RECORD else place = FIRST end
      local there, b, e
      if place < #value then there, at, a, b, e = unpack_('<c8dddd', value, place) end
      if there ~= id then
        place = place_of(value, id) or 0
        if place > 0 then at, a, b, e = unpack_('<dddd', value, place + 8) end
      end
      if place == 0 then
        at, a, is_usual = 0, 0, false
      elseif b ~= marks[limit] or e ~= y then
        is_usual = false
        at, a, b, e = record_at(value, place)
        if is_live(at, a, b, e) then
          olds[i] = { at, a, b, e }
          if b ~= LEVEL then
            a = used(a, b) * UTOK
            if a == 0 then at = 0 end
          end
        else
          at, a = 0, 0
        end
      end
    else
      place, is_usual = 0, false
    end
    slot_before, places[i] = slot, place
    found[i + i - 1], found[i + i] = at, a
    -- Drained until now, by whole steps; `part` is what the step under way has drained.
    local steps, part = now - at, 0
    if steps < 0 then steps = 0 end
    if y ~= 1 then
      local elapsed = steps
      steps = elapsed / y
      steps = steps - steps % 1
      part = (elapsed - steps * y) * x / y
      part = part - part % 1
    end
    local gone = steps * x
    if a > tops[limit] then a = tops[limit] end
    if a <= gone + part then
      a, part = 0, 0
      if now > at then at = now end
    else
      at, a = at + steps * y, a - gone
    end
    local cost = costs[i]
    a = a + cost
    ats[i], as[i], fits[i] = at, a, true
    if a > rooms[limit] + part and cost > 0 then
      fits[i], is_usual = false, false
      if shadows[i] == 0 then admitted = false end
    elseif cost == 0 then
      is_usual = false
    end
  end
  replied = replied + 1
  replies[replied] = pack(shape[7], admitted and 1 or 0, unpack(found, 1, count + count))
  local first = 1
  while first <= count do
    local slot, last = slots[first], first
    while slots[last + 1] == slot do last = last + 1 end
    local subject = subjects[slot]
    local value = values[subject]
    local new
    if is_usual then
      local lives, size = unpack_('<I4', value), #value
      local limit, at, a = limits[first], ats[first], as[first]
      if at + a * spans[limit] <= lives * UTOK then
        if first == last and size == 44 then
          new = pack('<I4c8dddd', lives, ids[first], at, a, marks[limit], ys[limit])
        elseif first + 1 == last and size == 84 and places[first] == FIRST then
          local other, other_at, other_a = limits[last], ats[last], as[last]
          if other_at + other_a * spans[other] <= lives * UTOK then
            new = pack('<I4c8ddddc8dddd', lives, ids[first], at, a, marks[limit], ys[limit],
              ids[last], other_at, other_a, marks[other], ys[other])
          end
        end
      end
    end
    if new then
      change(subject, new)
    else
      change_slowly(subject, first, last, shape, admitted)
    end
    first = last + 1
  end
end

for i = 1, changes do
  local subject = changed[i]
  local left = lefts[subject]
  if left then
    call('SET', KEYS[subject], values[subject], 'PX', left)
  else
    call('SET', KEYS[subject], values[subject], 'KEEPTTL')
  end
end
return table.concat(replies)
