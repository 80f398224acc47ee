-- The `head` of a subject that says something until `latest`, and how many milliseconds are `left` to it: twice as long as it must, and ten
-- seconds, so that the next writes need not set it again.
left = (latest > now and latest - now or 0) / 500
left = left - left % 1 + 10000
-- A second less, as it was rounded down.
head = (now / 1000 + left) / 1000 - 1
head = head - head % 1
if head > 4294967295 then head = 4294967295 elseif head < 0 then head = 0 end
