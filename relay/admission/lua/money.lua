-- Exact money. Lua numbers are doubles and exact only to 2^53 nano-units (9 million of a currency), so an amount is
-- carried as two of them: value = high * 10^9 + low with 0 <= low < 10^9. Both parts stay exact up to 9 * 10^24.
-- In the store and on the wire an amount is its plain decimal text.
local BASE = 1000000000
local floor, format, sub, tonumber = math.floor, string.format, string.sub, tonumber

-- The two parts of a decimal text.
local function split(text)
  if #text < 16 then -- below 10^15 the double itself is exact
    local value = tonumber(text)
    local high = floor(value / BASE)
    return high, value - high * BASE
  end
  local high, low = tonumber(sub(text, 1, -10)), tonumber(sub(text, -9))
  if low > 0 and sub(text, 1, 1) == '-' then
    return high - 1, BASE - low
  end
  return high, low
end

-- The decimal text of two parts.
local function join(high, low)
  if high >= 0 then
    if high < 1000000 then
      return format('%d', high * BASE + low)
    end
    return format('%.0f%09d', high, low)
  end
  if low > 0 then
    high, low = high + 1, BASE - low
  end
  if high == 0 then
    return format('-%d', low)
  end
  return format('%.0f%09d', high, low)
end

-- The sum of two amounts; to take one off, add it with sign -1.
local function add(high, low, more_high, more_low, sign)
  low = low + sign * more_low
  high = high + sign * more_high
  if low >= BASE then
    return high + 1, low - BASE
  elseif low < 0 then
    return high - 1, low + BASE
  end
  return high, low
end
