-- What the scripts of one organization read and write. A script reads everything it needs into these tables, decides
-- on them, and writes once, at its end: nothing can fail between two writes, so it takes all or nothing.
--
-- KEYS[1] use    hash: epoch; per level a field "<spent> <held> <open calls>", amounts in nano-units
-- KEYS[2] holds  hash: call id -> "<state> <amount> <lease ms> <level> <level> ..."
--                state h: held, the hold counts in held and open of its levels
--                state s: swept, it no longer does, but its settling is still awaited
--                state c: counted, its amount is in spent since the counters were rebuilt, its settling is awaited
-- KEYS[3] due    sorted set: call id -> when (ms) the sweeper must look: in state h at the end of the lease, in states s
--                and c when it is to be forgotten
local USE, HOLDS, DUE = KEYS[1], KEYS[2], KEYS[3]
local call, gmatch, match, concat = redis.call, string.gmatch, string.match, table.concat

local now_ms -- ARGV[1], for tests; else the store's own clock, the only one that all processes share
if ARGV[1] ~= '' then
  now_ms = tonumber(ARGV[1])
else
  local time = call('TIME')
  now_ms = tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000)
end

local epoch = false -- when the counters were initialised; false: this store was never told what was spent
local levels = {} -- name -> level, as read and then changed
local holds = {} -- call id -> hold, or false if there is none
local changed = {} -- call ids whose hold is to be written, or removed where it is false now

-- Read the holds of these calls, then the named levels and those of the holds, and the epoch. Appends to names.
local function read(ids, names)
  local texts = call('HMGET', HOLDS, unpack(ids))
  for i = 1, #ids do
    local text = texts[i]
    if text then
      local state, amount, lease, listed = match(text, '^(%a) (%d+) (%d+) (.+)$')
      local high, low = split(amount)
      local own = {}
      for name in gmatch(listed, '%S+') do
        own[#own + 1] = name
        names[#names + 1] = name
      end
      holds[ids[i]] = { state = state, high = high, low = low, lease = tonumber(lease), names = own }
    else
      holds[ids[i]] = false
    end
  end
  names[#names + 1] = 'epoch'
  local values = call('HMGET', USE, unpack(names))
  epoch = values[#names]
  for i = 1, #names - 1 do
    local spent, held, open = '0', '0', '0'
    if values[i] then
      spent, held, open = match(values[i], '^(%d+) (%d+) (%d+)$')
    end
    local spent_high, spent_low = split(spent)
    local held_high, held_low = split(held)
    levels[names[i]] = {
      spent_high = spent_high,
      spent_low = spent_low,
      held_high = held_high,
      held_low = held_low,
      open = tonumber(open),
      touched = false,
    }
  end
end

-- Begin (sign 1) or cease (sign -1) to count the hold at its levels; and count an amount there as spent, if given.
local function count_hold(hold, sign, spent_high, spent_low)
  for i = 1, #hold.names do
    local level = levels[hold.names[i]]
    if sign ~= 0 then
      level.held_high, level.held_low = add(level.held_high, level.held_low, hold.high, hold.low, sign)
      level.open = level.open + sign
    end
    if spent_high then
      level.spent_high, level.spent_low = add(level.spent_high, level.spent_low, spent_high, spent_low, 1)
    end
    level.touched = true
  end
end

-- Write what changed.
local function write()
  local fields, texts, scores, gone = {}, {}, {}, {}
  for name, level in pairs(levels) do
    if level.touched then
      local n = #fields
      local spent, held = join(level.spent_high, level.spent_low), join(level.held_high, level.held_low)
      fields[n + 1], fields[n + 2] = name, format('%s %s %d', spent, held, level.open)
    end
  end
  for id in pairs(changed) do
    local hold = holds[id]
    if hold then
      local n = #texts
      local amount, names = join(hold.high, hold.low), concat(hold.names, ' ')
      texts[n + 1], texts[n + 2] = id, format('%s %s %d %s', hold.state, amount, hold.lease, names)
      scores[n + 1], scores[n + 2] = hold.due, id
    else
      gone[#gone + 1] = id
    end
  end
  if #fields > 0 then
    call('HSET', USE, unpack(fields))
  end
  if #texts > 0 then
    call('HSET', HOLDS, unpack(texts))
    call('ZADD', DUE, unpack(scores))
  end
  if #gone > 0 then
    call('HDEL', HOLDS, unpack(gone))
    call('ZREM', DUE, unpack(gone))
  end
end
