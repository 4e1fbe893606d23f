-- Tell a store that has lost its counters, or never had them, what was spent; only the first to tell is heard. Open
-- holds that were announced before stay as they are, but for those whose call is among the totals already: they count
-- no more, and their settling, when it comes, changes nothing. Whoever removes the field epoch makes this happen again.
--
-- ARGV    now in ms or '' | how long a counted hold waits for its settling, in ms | number of counted calls
--         the counted calls | pairs of level and total
-- Answer  1 if this call initialised the counters, 0 if they were already
if call('HEXISTS', USE, 'epoch') == 1 then
  return 0
end

local last_counted, most = 3 + tonumber(ARGV[3]), 128
for first = 4, last_counted, most do
  local ids = {}
  for i = first, math.min(first + most - 1, last_counted) do
    ids[#ids + 1] = ARGV[i]
  end
  levels, holds, changed = {}, {}, {}
  read(ids, {})
  for _, id in ipairs(ids) do
    local hold = holds[id]
    if hold then
      if hold.state == 'h' then
        count_hold(hold, -1)
      end
      hold.state, hold.due = 'c', now_ms + tonumber(ARGV[2])
      changed[id] = true
    end
  end
  write()
end

local spent, rest = {}, {} -- level -> its total; level -> its held amount and open calls
local known = call('HGETALL', USE)
for i = 1, #known, 2 do
  rest[known[i]] = match(known[i + 1], '^%d+ (%d+ %d+)$')
end
for i = last_counted + 1, #ARGV, 2 do
  spent[ARGV[i]] = ARGV[i + 1]
  rest[ARGV[i]] = rest[ARGV[i]] or '0 0'
end
for name, held_and_open in pairs(rest) do
  call('HSET', USE, name, (spent[name] or '0') .. ' ' .. held_and_open)
end
call('HSET', USE, 'epoch', floor(now_ms / 1000))
return 1
