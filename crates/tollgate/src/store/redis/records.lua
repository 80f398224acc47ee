-- What lies under a subject, and changes nothing.
--
-- KEYS[1]  the subject
-- Returns  for each record that says something its id (c8), and from when on it says nothing (d)

local value, said = call('GET', KEYS[1]) or '', {}
for place = 1, #value, RECORD do
  local id, _, a, b, e = unpack_('<c8dddd', value, place)
  if not (a == 0 and b == LEVEL) then said[#said + 1] = pack('<c8d', id, e) end
end
return table.concat(said)
