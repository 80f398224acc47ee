-- The time of the call, `now`: this server's, if the caller `sent` none; the caller's, as long as it is not ahead of this server's and behind it
-- by no more than the `tolerance`; the caller's whatever it is, if the tolerance is negative.
if sent then sent, tolerance = tonumber(sent), tonumber(tolerance) end
if sent and tolerance < 0 then
  now = sent
else
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
  if sent and sent <= now and now - sent <= tolerance then now = sent end
end
