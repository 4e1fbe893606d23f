-- Tell a store that has lost its counters, or never had them, what was spent; only the first to tell is heard. Open
-- holds that were announced before stay as they are. Whoever removes the field epoch makes this happen again.
--
-- KEYS[1] use (see holds.lua) | ARGV  pairs of level and total
-- Answer  1 if this call initialised the counters, 0 if they were already
local USE, call, match = KEYS[1], redis.call, string.match
if call('HEXISTS', USE, 'epoch') == 1 then
  return 0
end

local spent, rest = {}, {} -- level -> its total; level -> its held amount and open calls
local known = call('HGETALL', USE)
for i = 1, #known, 2 do
  rest[known[i]] = match(known[i + 1], '^%d+ (%d+ %d+)$')
end
for i = 1, #ARGV, 2 do
  spent[ARGV[i]] = ARGV[i + 1]
  rest[ARGV[i]] = rest[ARGV[i]] or '0 0'
end
for name, held_and_open in pairs(rest) do
  call('HSET', USE, name, (spent[name] or '0') .. ' ' .. held_and_open)
end
call('HSET', USE, 'epoch', call('TIME')[1])
return 1
