-- The pieces as functions, for scripts that need them in several places.
--
-- A token or leaky bucket has a level in microtokens, of which x drain every y microseconds.

local function drained(at, a, x, y)
  local part
  --[drained]
  return at, a, part
end

local function full(x, y, z)
  local most
  --[full]
  return most
end

local function life_until(latest)
  local head, left
  --[life]
  return head, left
end

