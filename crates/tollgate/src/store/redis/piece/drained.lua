-- A level `a` that was true `at` some time, drained until now by whole steps; `part` is what the step under way has drained.
local whole, gone = now - at, nil
part = 0
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
if a <= gone + part then
  if now > at then at = now end
  a, part = 0, 0
else
  at, a = at + whole, a - gone
end
