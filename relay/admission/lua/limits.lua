-- What the rows say against a call. A row is a level with its limits: ARGV has per row balance, budget, concurrency
-- and rpm, '' where there is no such limit; KEYS[3 + i] is the call window of row i.
local BALANCE, BUDGET, CONCURRENCY, RPM = 1, 2, 3, 4

-- The refusal of an amount by the first row that has not so much left, or nil. An amount of 0 always passes: a call
-- that costs nothing may be made with nothing left.
local function refuse_money(rows, high, low)
  if high == 0 and low == 0 then
    return nil
  end
  for i = 1, #rows do
    local level = rows[i].level
    for kind = BALANCE, BUDGET do
      local allowance = ARGV[rows[i].at + kind]
      if allowance ~= '' then
        local left_high, left_low = split(allowance)
        left_high, left_low = add(left_high, left_low, level.spent_high, level.spent_low, -1)
        left_high, left_low = add(left_high, left_low, level.held_high, level.held_low, -1)
        if high > left_high or (high == left_high and low > left_low) then
          return { 0, rows[i].number, kind, join(left_high, left_low), '' }
        end
      end
    end
  end
  return nil
end

-- The refusal of one more call by the first row that has no place for it, or nil.
local function refuse_entry(rows)
  for i = 1, #rows do
    local limit = ARGV[rows[i].at + CONCURRENCY]
    if limit ~= '' and rows[i].level.open >= tonumber(limit) then
      return { 0, rows[i].number, CONCURRENCY, '', '' }
    end
  end
  for i = 1, #rows do
    local limit = tonumber(ARGV[rows[i].at + RPM])
    if limit then
      local window = read_window(KEYS[3 + rows[i].number])
      if window.total >= limit then
        return { 0, rows[i].number, RPM, '', frees_in_ms(window, limit) or '' }
      end
    end
  end
  return nil
end
