-- The time of a call, and how long what it writes lives.

local call = redis.call
-- In microseconds; set by the script that follows.
local now

-- The time of the call: this server's, if the caller sends none; the caller's, as long as it is not ahead of this server's and behind it by
-- no more than the tolerance; the caller's whatever it is, if the tolerance is negative. They come last, as each argument has its price.
local function time_of(sent, tolerance)
  if not sent then
    local time = call('TIME')
    return time[1] * 1000000 + time[2]
  end
  sent, tolerance = tonumber(sent), tonumber(tolerance)
  if tolerance < 0 then return sent end
  local own = time_of()
  if sent > own or own - sent > tolerance then return own end
  return sent
end

-- The head and the milliseconds of a subject that says something until then: twice as long as it must, and ten seconds, so that the next
-- writes need not set it again.
local function life_until(latest)
  local left = (latest > now and latest - now or 0) / 500
  left = left - left % 1 + 10000
  -- A second less, as it was rounded down.
  local head = (now / 1000 + left) / 1000 - 1
  head = head - head % 1
  if head > 4294967295 then head = 4294967295 elseif head < 0 then head = 0 end
  return head, left
end

