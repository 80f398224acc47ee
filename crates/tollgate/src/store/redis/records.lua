-- What lies under a subject, and changes nothing.
--
-- KEYS[1]  the subject
-- Returns  for each record that says something its id (c8), and from when on it says nothing (d)

--[names]
local now
--[level]
--[record]
--[subject]
local value, said = value_of(KEYS[1]), {}
for place = HEAD + 1, #value, RECORD do
  local at, a, b, e = record_at(value, place)
  if at >= 0 and e >= 0 and e < EXACT and not (a == 0 and b == LEVEL) then said[#said + 1] = pack('<c8d', sub(value, place, place + 7), e) end
end
return table.concat(said)
