-- Operations on the holds of one organization, decided in the order they stand in, each seeing what those before it
-- did.
--
-- ARGV    now in ms or '' | number of operations | number of rows
--         call id of each operation | level of each row | four limits of each row (limits.lua)
--         each operation: its letter, its arguments, and where it has rows their number and the rows
-- Answer  one per operation: 1 done; 0 nothing to do; -1 the counters are not initialised;
--         {0, row, kind, what is left or '', ms until it changes or ''} refused
local DONE, NOTHING, UNKNOWN = 1, 0, -1
local operations, row_count = tonumber(ARGV[2]), tonumber(ARGV[3])
local all_rows = {}

-- The rows that stand at ARGV[at], after their number; their names, for the hold; and the last position read.
local function rows_at(at)
  local rows, names, last = {}, {}, at + tonumber(ARGV[at])
  for i = at + 1, last do
    local number = tonumber(ARGV[i])
    local row = all_rows[number]
    if not row then
      local name = ARGV[3 + operations + number]
      local limits_at = 3 + operations + row_count + 4 * (number - 1)
      row = { number = number, name = name, level = levels[name], at = limits_at }
      all_rows[number] = row
    end
    rows[i - at], names[i - at] = row, row.name
  end
  return rows, names, last
end

-- p amount lease rows: take a hold if every row allows it. Asked again for a held call: it is done already.
local function permit(id, at)
  local rows, names, last = rows_at(at + 3)
  if holds[id] and holds[id].state == 'h' then
    return DONE, last
  end
  if not epoch then
    return UNKNOWN, last
  end
  local high, low = split(ARGV[at + 1])
  local refusal = refuse_money(rows, high, low) or refuse_entry(rows)
  if refusal then
    return refusal, last
  end
  for i = 1, #rows do
    if ARGV[rows[i].at + RPM] ~= '' then
      count_call(read_window(KEYS[3 + rows[i].number]))
    end
  end
  local lease = tonumber(ARGV[at + 2])
  local hold = { state = 'h', high = high, low = low, lease = lease, names = names, due = now_ms + lease }
  count_hold(hold, 1)
  holds[id], changed[id] = hold, true
  return DONE, last
end

-- s amount: give the hold back and count the true amount as spent. Of a swept hold there is nothing to give back, and a
-- counted one is only forgotten.
local function settle(id, at)
  local hold = holds[id]
  if not epoch then
    return UNKNOWN, at + 1
  end
  if not hold then
    return NOTHING, at + 1
  end
  if hold.state ~= 'c' then
    count_hold(hold, hold.state == 'h' and -1 or 0, split(ARGV[at + 1]))
  end
  holds[id], changed[id] = false, true
  return DONE, at + 1
end
