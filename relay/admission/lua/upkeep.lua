-- The rarer operations on a hold between its taking and its settling. A counted hold (state c) belongs to a call that is
-- over: for them it is not there.

-- x amount rows: add to a hold if every row allows it, and renew it. A swept hold is asked for whole, and counts again.
local function extend(id, at)
  local rows, _, last = rows_at(at + 2)
  local hold = holds[id]
  if not epoch then
    return UNKNOWN, last
  end
  if not hold or hold.state == 'c' then
    return NOTHING, last
  end
  local is_held = hold.state == 'h'
  local more_high, more_low = split(ARGV[at + 1])
  local high, low = add(hold.high, hold.low, more_high, more_low, 1)
  local refusal
  if is_held then
    refusal = refuse_money(rows, more_high, more_low)
  else
    refusal = refuse_money(rows, high, low)
  end
  if refusal then
    return refusal, last
  end
  if is_held then
    count_hold(hold, -1)
  end
  hold.state, hold.high, hold.low, hold.due = 'h', high, low, now_ms + hold.lease
  count_hold(hold, 1)
  changed[id] = true
  return DONE, last
end

-- r lease: the call lives, keep its hold for another lease. A swept one counts again: its money is being spent.
local function renew(id, at)
  local hold = holds[id]
  if not hold or hold.state == 'c' then
    return NOTHING, at + 1
  end
  if hold.state ~= 'h' then
    hold.state = 'h'
    count_hold(hold, 1)
  end
  hold.due = now_ms + tonumber(ARGV[at + 1])
  changed[id] = true
  return DONE, at + 1
end

-- a amount lease rows: the hold of a living call as its process remembers it, for a store that lost it. Limits are not
-- asked, the call is under way. Also before the counters are initialised, so that the hold is there when they are.
local function announce(id, at)
  local _, names, last = rows_at(at + 3)
  local hold, lease = holds[id], tonumber(ARGV[at + 2])
  local answer = NOTHING
  if hold and hold.state == 'c' then
    return NOTHING, last
  end
  if not hold then
    local high, low = split(ARGV[at + 1])
    hold = { state = 's', high = high, low = low, lease = lease, names = names }
  end
  if hold.state ~= 'h' then
    hold.state = 'h'
    count_hold(hold, 1)
    answer = DONE
  end
  hold.due = now_ms + lease
  holds[id], changed[id] = hold, true
  return answer, last
end
