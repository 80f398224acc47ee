-- The level of a token or leaky bucket, in microtokens: x of them drain every y microseconds.

local UTOK = 1000000

-- Drained until now, by whole steps: since when, what is used, and what the step under way has drained.
local function drained(at, used, x, y)
  local whole, part, gone = now - at, 0, nil
  if whole < 0 then whole = 0 end
  if y == 1 then
    gone = whole * x
  else
    local rest = whole % y
    whole = whole - rest
    gone = whole / y * x
    part = rest * x / y
    part = part - part % 1
  end
  if used <= gone + part then return now > at and now or at, 0, 0 end
  return at + whole, used - gone, part
end

-- The level of a full token bucket: a lowered limit denies until one token has drained, not until the old burst has.
local function full(x, y, z)
  local most = (y - 1) * x / y
  return z * UTOK + most - most % 1
end

