-- Takes from one token bucket for each request; several requests in one call, one after the other.
--
-- It does what tokens.lua does, for requests of one tier, at six or seven tenths of the cost, as there is less to prepare. Each is written before the
-- next is read: should a value that nobody here wrote end the call with an error, those before it stay charged, and nobody else is.
--
-- KEYS     the subject of each request
-- ARGV[1]  for those in a row that are alike: how many (H), whether it is a shadow (B), and (ddddd) x, y, z, id, cost
-- ARGV[2]  the time in microseconds, and ARGV[3] its tolerance, if it is not this server's: see piece/time.lua
-- Returns  the time (d), then for each request whether it passes (B) and the level as it was found (dd: at, a)

--[names]
local now
local sent, tolerance = ARGV[2], ARGV[3]
--[time]
local pack, unpack_, try = struct.pack, struct.unpack, redis.pcall
local blob, position, alike, count = ARGV[1], 1, 0, #KEYS
local said = count > 1 and {}
local RATED = -4
local shadow, x, y, z, id, cost, room, most, mark, life
-- What is seldom needed is made when it is.
local read_slowly, change_slowly, values, changed, lefts, ats, as

for i = 1, count do
  if alike == 0 then
    alike, shadow, x, y, z, id, cost, position = unpack_('<HBddddd', blob, position)
    --[full]
    room, cost = z * UTOK, cost * UTOK
    mark, life = RATED - x, y / x * 17 / 16
  end
  alike = alike - 1
  local key = KEYS[i]
  local value = try('GET', key)
  if value and #value ~= 44 and (#value < 44 or #value % 40 ~= 4) then
    -- What nobody here wrote counts as nothing, and is written over; if it is no string, that is said by an error. Others end the call.
    if value.err and string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then call('GET', key) end
    value = false
  end
  local slowly, again, passes, found_at, found_a = false, nil, nil, nil, nil
  repeat
    again = false
    local head, at, a, part = 0, 0, 0, nil
    if value then
      local there, b, e
      head, there, at, a, b, e = unpack_('<I4ddddd', value)
      if slowly or there ~= id or b ~= mark or e ~= y or not (at < 9007199254740992) then
        slowly = true
        if not read_slowly then
          --[seldom]
          read_slowly, change_slowly, values, changed, lefts, ats, as = seldom(now, {}, {}, {}, {}, {}, {})
        end
        at, a = read_slowly(value, 1, id)
      end
    end
    found_at, found_a = at, a
    if a > most then a = most end
    --[drained]
    a = a + cost
    local fits = cost == 0 or a <= room + part
    passes = fits or shadow == 1
    if slowly then
      values[i], ats[1], as[1] = value, at, fits and a or -1
      -- A list of one tier, as tokens.lua makes them.
      change_slowly(i, { { 1, { x, y, room, most, mark, life }, shadow, id, cost } }, 1, 1, passes)
      local left = lefts[i]
      if left then
        call('SET', key, changed[i], 'PX', left)
      elseif changed[i] then
        call('SETRANGE', key, '0', changed[i])
      end
    elseif fits and cost > 0 then
      local latest = at + a * life
      if latest <= head * UTOK then
        -- In place, which also keeps the expiry.
        call('SETRANGE', key, '12', pack('<dd', at, a))
      elseif not value or #value == 44 then
        local left
        --[life]
        call('SET', key, pack('<I4ddddd', head, id, at, a, mark, y), 'PX', left)
      else
        -- Others lie beside it, and who says nothing any more is to go now.
        slowly, again = true, true
      end
    end
  until not again
  -- Most are alone.
  if not said then return pack('<dBdd', now, passes and 1 or 0, found_at, found_a) end
  said[i] = pack('<Bdd', passes and 1 or 0, found_at, found_a)
end
return pack('<d', now) .. table.concat(said)
