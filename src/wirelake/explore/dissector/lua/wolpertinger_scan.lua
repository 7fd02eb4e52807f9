-- Kernels of wolpertinger whose Python compares eight letters as one number of 64 bits.

local function _stop_of(data, at, stop, lines)
  local found = find_text(data, lines ~= 0 and "[;\n]" or ";", at + 1)
  return found and found - 1 < stop and found - 1 or math.max(at, stop)
end

-- WOLP-1, WOLP-2: one pair of metadata: which key, where its value begins, oddities, fault, where.
local function _pair(data, begin, end_)
  local pair = sub(data, begin + 1, end_)
  local colon = find_text(pair, ":", 1, true)
  if not colon or colon == 1 or colon == #pair then return 0, end_, 0, FAULT_PAIR_INVALID, begin end
  local second = find_text(pair, ":", colon + 1, true)
  if second then return 0, end_, 0, FAULT_PAIR_INVALID, begin + second - 1 end
  local key = sub(pair, 1, colon - 1)
  local wrong = find_text(key, "[^A-Za-z0-9_]")
  if wrong then return 0, end_, 0, FAULT_KEY_MALFORMED, begin + wrong - 1 end
  local odd = find_text(key, "[A-Z]") and ODD_CASE or 0
  -- The kernel looks at the first 16 letters of a key.
  key = sub(key:lower(), 1, 16)
  local what = KEYS[key]
  if not what then return 0, end_, odd, FAULT_KEY_UNKNOWN, begin end
  if what == IS_SIGNATURE then return what, begin + colon, odd, FAULT_SIGNATURE_REFUSED, begin end
  if key == "secure" then odd = odd + ODD_ALIAS end
  return what, begin + colon, odd, 0, begin
end

local function _has_blanks(data, start, stop)
  return find_text(sub(data, start + 1, stop), "[ \t\r\n]") ~= nil
end
