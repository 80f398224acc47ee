-- Forgets what buckets of one subject used.
--
-- KEYS[1]  the subject      KEYS[2…]  the log's key of each bucket
-- ARGV     the id of each bucket

--[names]
local now
--[level]
--[record]
--[subject]
local value, gone = value_of(KEYS[1]), {}
for i = 1, #ARGV do
  gone[ARGV[i]] = true
  call('DEL', KEYS[i + 1])
end
local kept = { sub(value, 1, HEAD) }
for place = HEAD + 1, #value, RECORD do
  if not gone[sub(value, place, place + 7)] then
    kept[#kept + 1] = sub(value, place, place + RECORD - 1)
  end
end
if #kept == 1 then
  call('DEL', KEYS[1])
else
  call('SET', KEYS[1], table.concat(kept), 'KEEPTTL')
end
return 1
