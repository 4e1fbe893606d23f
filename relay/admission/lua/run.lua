-- Read, run the operations of book.lua and upkeep.lua, write.
local handlers = { p = permit, s = settle, x = extend, r = renew, a = announce }
local ids, names = {}, {}
for i = 1, operations do
  ids[i] = ARGV[3 + i]
end
for i = 1, row_count do
  names[i] = ARGV[3 + operations + i]
end
read(ids, names)

local answers, at = {}, 4 + operations + 5 * row_count
for i = 1, operations do
  answers[i], at = handlers[ARGV[at]](ids[i], at)
  at = at + 1
end

write()
write_windows()
return answers
