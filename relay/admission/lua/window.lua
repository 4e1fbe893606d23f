-- Calls in any 60 seconds, per level with such a limit; amortised O(1): each second's count is read once, when it
-- leaves.
--
-- The key is a hash that expires by itself. Field "head": "<total> <oldest> <newest> <count of newest>"; every older
-- second that still counts has a field "<second>": "<count> <next second>", a chain from oldest to newest.
-- A second counts until it has wholly left the last 60, that is for 61 seconds: a slot frees up to one second late,
-- never early.
local SPAN_S = 61
local now_s = floor(now_ms / 1000)
local windows = {} -- key -> window

-- The count of an older second, and the second after it.
local function read_second(window, second)
  local text = second == window.closed and window.closed_text or call('HGET', window.key, second)
  local count, following = match(text, '^(%d+) (%d+)$')
  return tonumber(count), tonumber(following)
end

local function read_window(key)
  local window = windows[key]
  if window then
    return window
  end
  window = { key = key, total = 0, oldest = now_s, newest = now_s, count = 0 }
  windows[key] = window
  local head = call('HGET', key, 'head')
  if not head then
    return window
  end
  local total, oldest, newest, count = match(head, '^(%d+) (%d+) (%d+) (%d+)$')
  window.total, window.oldest = tonumber(total), tonumber(oldest)
  window.newest, window.count = tonumber(newest), tonumber(count)
  while window.total > 0 and window.oldest <= now_s - SPAN_S do
    if window.oldest == window.newest then
      window.total = 0
    else
      local dropped = window.dropped or {}
      dropped[#dropped + 1] = window.oldest
      window.dropped = dropped
      local gone, following = read_second(window, window.oldest)
      window.total, window.oldest = window.total - gone, following
    end
  end
  return window
end

-- Milliseconds until one more call fits under limit; nil if it never will (limit 0).
local function frees_in_ms(window, limit)
  local surplus, second = window.total - limit + 1, window.oldest
  while limit > 0 do
    local count, following = window.count, nil
    if second ~= window.newest then
      count, following = read_second(window, second)
    end
    surplus = surplus - count
    if surplus <= 0 then
      return (second + SPAN_S) * 1000 - now_ms
    end
    second = following
  end
  return nil
end

local function count_call(window)
  if window.total == 0 then
    window.oldest, window.newest, window.count, window.fresh = now_s, now_s, 1, true
  elseif now_s <= window.newest then -- earlier: the store's clock was set back
    window.count = window.count + 1
  else
    window.closed, window.closed_text = window.newest, window.count .. ' ' .. now_s
    window.newest, window.count, window.fresh = now_s, 1, true
  end
  window.total, window.counted = window.total + 1, true
end

local function write_windows()
  for key, window in pairs(windows) do
    if window.counted or window.dropped then
      local head = format('%d %d %d %d', window.total, window.oldest, window.newest, window.count)
      if window.closed then
        call('HSET', key, 'head', head, window.closed, window.closed_text)
      else
        call('HSET', key, 'head', head)
      end
    end
    if window.dropped then
      call('HDEL', key, unpack(window.dropped))
    end
    if window.fresh then
      call('EXPIRE', key, SPAN_S + 1)
    end
  end
end
