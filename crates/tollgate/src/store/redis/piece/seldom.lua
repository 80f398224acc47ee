-- What tokens.lua and single.lua need seldom. It is made when it is needed, as to make these functions costs more than to run them. It uses
-- nothing of what is around it, as each thing that a function uses from outside has its price when the function is made.
local function seldom(now, the_values, changed, lefts, ats, as, olds)
--[names]
--[level]
--[record]
--[subject]
-- They are closures over lists of whoever makes them, which are returned as well, for who makes those here too: values by subject, what is to be
-- written of them, their lives if those are to be set; and by tier when its level was true and what is used (see tokens.lua).

-- A record that is not where it mostly is, or is new, or was written under another limit or in another form. Returns the level, and where
-- to look for the next.
local function read_slowly(value, i, id)
  local place = place_of(value, pack('<d', id))
  if not place then return 0, 0, HEAD + 1 end
  local at, a, b, e = record_at(value, place)
  if not is_live(at, a, b, e) then return 0, 0, place end
  local old = { at, a, b, e }
  if b ~= LEVEL then
    a = used(a, b) * UTOK
    if a == 0 then at = 0 end
  end
  old[5], old[6], olds[i] = at, a, old
  return at, a, place
end

-- A subject with such records, or with tiers that are not charged.
local function change_slowly(subject, tiers, first, last, admitted)
  local value = the_values[subject] or EMPTY
  local latest, is_any = 0, false
  for i = first, last do
    local tier, at, a, old, record = tiers[i], ats[i], as[i], olds[i], nil
    local limit, id, cost = tier[2], tier[4], tier[5]
    if admitted and a >= 0 and cost > 0 then
      record = pack('<ddddd', id, at, a, limit[5], limit[2])
      latest = max(latest, at + a * limit[6])
    elseif old then
      -- The limit may have become a slower one since: not to be forgotten before.
      local empty = old[5] + us_to_drain(min(old[6], limit[4]), limit[1], limit[2])
      if empty > forget_at(old[1], old[4]) then
        record = pack('<ddddd', id, old[1], old[2], old[3], empty)
        latest = max(latest, forget_at(old[1], empty))
      end
    end
    olds[i] = nil
    if record then
      value, is_any = with_record(value, place_of(value, pack('<d', id)) or 0, record), true
    end
  end
  if is_any then
    if latest > unpack_('<I4', value) * UTOK then
      value, lefts[subject] = cleaned(value)
    end
    the_values[subject], changed[subject] = value, value
  end
end

return read_slowly, change_slowly, the_values, changed, lefts, ats, as
end
