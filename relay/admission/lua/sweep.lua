-- Take holds whose lease has run out off the counters, and forget swept ones after their time.
--
-- ARGV    now in ms or '' | how many calls at most | how long a swept hold waits for its settling, in ms
-- Answer  {swept, forgotten, 1 if there may be more}
local ids = call('ZRANGEBYSCORE', DUE, '-inf', now_ms, 'LIMIT', 0, ARGV[2])
if #ids == 0 then
  return { 0, 0, 0 }
end
read(ids, {})
local swept = 0
for _, id in ipairs(ids) do
  local hold = holds[id]
  if hold and hold.state == 'h' then
    count_hold(hold, -1)
    hold.state, hold.due = 's', now_ms + tonumber(ARGV[3])
    swept = swept + 1
  else
    holds[id] = false
  end
  changed[id] = true
end
write()
return { swept, #ids - swept, #ids == tonumber(ARGV[2]) and 1 or 0 }
