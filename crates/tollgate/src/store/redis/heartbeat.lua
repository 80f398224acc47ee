-- Says that an instance lives, and how many do.
--
-- KEYS[1]  the instances: a sorted set of their ids, each with the time until which it counts (milliseconds, this server's clock)
-- ARGV[1]  the instance's id
-- ARGV[2]  for how many milliseconds it counts from now on; 0: it goes
-- Returns  how many live

--[names]
local instances, id, life = KEYS[1], ARGV[1], tonumber(ARGV[2])
local time = call('TIME')
local this_moment = time[1] * 1000 + math.floor(time[2] / 1000)
if life > 0 then
  call('ZADD', instances, this_moment + life, id)
else
  call('ZREM', instances, id)
end
-- Each has said itself how long it counts: they need not beat at the same pace.
call('ZREMRANGEBYSCORE', instances, '-inf', this_moment)
local last = call('ZREVRANGE', instances, 0, 0, 'WITHSCORES')
if last[2] then call('PEXPIRE', instances, last[2] - this_moment) end
return call('ZCARD', instances)
