-- The load for all peers. Arguments: how (get, tollgate, throttlecrab), what (fill, all, deny), keys, and throttlecrab's limit and seconds.
--   fill: each key once, then the end.   all: keys at random.   deny: keys at random, and every hundredth request from somebody new.
local how, what, keys, limit, seconds
local sent, answered, fresh = 0, 0, 0
local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

function init(args)
  how, what, keys = args[1], args[2], tonumber(args[3])
  limit, seconds = args[4], args[5]
  math.randomseed(os.time() * 1000 + tonumber(tostring({}):match("0x(%x+)"), 16) % 1000)
  fresh = math.random(1, 1000000000)
  if what == "fill" then
    response = function()
      answered = answered + 1
      -- wrk has no other way to end before its time.
      if answered >= keys then os.exit(0) end
    end
  end
end

local function key()
  sent = sent + 1
  if what == "fill" then return "c" .. (sent - 1) % keys end
  if what == "deny" and sent % 100 == 0 then
    fresh = fresh + 1
    return "n" .. fresh
  end
  return "c" .. math.random(0, keys - 1)
end

local function post(path, body)
  return "POST " .. path .. " HTTP/1.1\r\nHost: peers\r\nContent-Type: application/json\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body
end

function request()
  local key = key()
  if how == "get" then
    return "GET /y HTTP/1.1\r\nHost: peers\r\nx-client-id: " .. key .. "\r\n\r\n"
  elseif how == "tollgate" then
    return post("/v1/check?status=decision", '{"client":"' .. key .. '","method":"GET","path":"/y"}')
  end
  return post("/throttle", '{"key":"' .. key .. '","max_burst":' .. limit .. ',"count_per_period":' .. limit .. ',"period":' .. seconds .. '}')
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format("peers %d %d %d %d %d %d\n", summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
