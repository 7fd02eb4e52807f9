-- Numbers and bits.

local octet, sub, find_text = string.byte, string.sub, string.find
local bits = bit or bit32
local band, bor, bxor, bnot, lshift, rshift = bits.band, bits.bor, bits.bxor, bits.bnot, bits.lshift, bits.rshift

-- Kernels whose Python works with 64 bits at a time; numbers of Lua have 53.
local function u16(data, at)
  local a, b = octet(data, at + 1, at + 2)
  return a * 256 + b
end

local function u32(data, at)
  local a, b, c, d = octet(data, at + 1, at + 4)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

local function u16_le(data, at)
  local a, b = octet(data, at + 1, at + 2)
  return b * 256 + a
end

local function u32_le(data, at)
  local a, b, c, d = octet(data, at + 1, at + 4)
  return ((d * 256 + c) * 256 + b) * 256 + a
end

-- Zero, the sign, and all numbers below 2^53 are exact: scanners compare no others.
local function i64(data, at)
  local high = u32(data, at)
  if high >= 2147483648 then high = high - 4294967296 end
  return high * 4294967296 + u32(data, at + 4)
end

local function i64_le(data, at)
  local high = u32_le(data, at + 4)
  if high >= 2147483648 then high = high - 4294967296 end
  return high * 4294967296 + u32_le(data, at)
end

local function is_ascii(data, start, stop)
  return find_text(sub(data, start + 1, stop), "[\128-\255]") == nil
end

-- 32 bits of a constant that is written as text, its last bit first.
local function rshift_bits(text, count)
  local number = 0
  for at = math.min(#text, count + 32), count + 1, -1 do
    number = number * 2 + octet(text, at) - 48
  end
  return number
end

local unpack_values = table.unpack or unpack
local CLIENT, SERVER = 0, 1
