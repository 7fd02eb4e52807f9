-- gzip (RFC 1952) with all its checks: the function of Wireshark accepts a cut member, a wrong checksum and bytes behind it.

local inflate
do
  local MOST_INFLATED = 1048576 -- bytes that are inflated of one body, and read of one: a dissector must not take seconds or gigabytes

  local CRC = {}
  for index = 0, 255 do
    local value = index
    for _ = 1, 8 do
      value = band(value, 1) ~= 0 and bxor(rshift(value, 1), 0xEDB88320) or rshift(value, 1)
    end
    CRC[index] = value
  end

  local function crc32(text)
    local crc = bnot(0)
    for at = 1, #text do
      crc = bxor(rshift(crc, 8), CRC[band(bxor(crc, octet(text, at)), 255)])
    end
    return bnot(crc) % 4294967296
  end

  local function tree_of(lengths, first, count)
    local counts, codes, code = {}, {}, 0
    for at = first, first + count - 1 do counts[lengths[at]] = (counts[lengths[at]] or 0) + 1 end
    counts[0] = 0
    local next_code = {}
    for size = 1, 15 do
      code = (code + (counts[size - 1] or 0)) * 2
      next_code[size] = code
      if code + (counts[size] or 0) > 2 ^ size then return nil end
    end
    for at = first, first + count - 1 do
      local size = lengths[at]
      if size > 0 then
        codes[size * 65536 + next_code[size]] = at - first
        next_code[size] = next_code[size] + 1
      end
    end
    return codes
  end

  local LENGTH_BASE = {3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258}
  local LENGTH_BITS = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0}
  local PLACE_BASE = {1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577}
  local PLACE_BITS = {0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13}
  local ORDER = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}
  local CUT_SHORT, TOO_LONG = "cut", "long"

  -- Undoes deflate (RFC 1951) from a place into a table; returns the place behind. Raises a text.
  local function undo(data, at, most, out)
    local size, hold, held = 0, 0, 0
    local function take(count)
      while held < count do
        local one = octet(data, at + 1)
        if not one then error(CUT_SHORT, 0) end
        hold, held, at = hold + one * 2 ^ held, held + 8, at + 1
      end
      local value = hold % 2 ^ count
      hold, held = (hold - value) / 2 ^ count, held - count
      return value
    end
    local function symbol(codes)
      local code = 0
      for length = 1, 15 do
        code = code * 2 + take(1)
        local found = codes[length * 65536 + code]
        if found then return found end
      end
      error("code", 0)
    end
    local function put(one)
      size = size + 1
      if size > most then error(TOO_LONG, 0) end
      out[size] = one
    end
    local function codes_of_block(kind)
      local lengths = {}
      if kind == 1 then
        for index = 0, 319 do
          lengths[index] = index < 144 and 8 or index < 256 and 9 or index < 280 and 7 or index < 288 and 8 or 5
        end
        return tree_of(lengths, 0, 288), tree_of(lengths, 288, 32)
      end
      local literals, places, count = take(5) + 257, take(5) + 1, take(4) + 4
      if literals > 286 or places > 30 then error("counts", 0) end
      for index = 0, 18 do lengths[index] = 0 end
      for index = 1, count do lengths[ORDER[index]] = take(3) end
      local short, index, before = tree_of(lengths, 0, 19), 0, nil
      if not short then error("lengths", 0) end
      local all = {}
      while index < literals + places do
        local code = symbol(short)
        local times, value = 1, code
        if code == 16 then
          if not before then error("repeat", 0) end
          times, value = take(2) + 3, before
        elseif code >= 17 then
          times, value = code == 17 and take(3) + 3 or take(7) + 11, 0
        end
        if index + times > literals + places then error("repeat", 0) end
        for _ = 1, times do
          all[index], index = value, index + 1
        end
        before = value
      end
      if all[256] == 0 then error("end", 0) end
      return tree_of(all, 0, literals), tree_of(all, literals, places)
    end
    repeat
      local is_last, kind = take(1), take(2)
      if kind == 0 then
        hold, held = 0, 0
        local length, inverse = take(16), take(16)
        if length + inverse ~= 65535 then error("stored", 0) end
        for _ = 1, length do put(take(8)) end
      elseif kind == 3 then
        error("block", 0)
      else
        local literals, places = codes_of_block(kind)
        if not literals or not places then error("tree", 0) end
        while true do
          local code = symbol(literals)
          if code < 256 then
            put(code)
          elseif code == 256 then
            break
          else
            if code > 285 then error("length", 0) end
            local length = LENGTH_BASE[code - 256] + take(LENGTH_BITS[code - 256])
            local place = symbol(places)
            if place > 29 then error("distance", 0) end
            local distance = PLACE_BASE[place + 1] + take(PLACE_BITS[place + 1])
            if distance > size then error("distance", 0) end
            for _ = 1, length do put(out[size + 1 - distance]) end
          end
        end
      end
    until is_last == 1
    return at
  end

  local function text_of(bytes)
    local pieces = {}
    for at = 1, #bytes, 4096 do
      pieces[#pieces + 1] = string.char(unpack_values(bytes, at, math.min(#bytes, at + 4095)))
    end
    return table.concat(pieces)
  end

  local function member(data, at, most, bytes)
    if #data - at < 10 then error(CUT_SHORT, 0) end
    local flags, begin = octet(data, at + 4), at
    if sub(data, at + 1, at + 3) ~= "\031\139\008" or flags >= 32 then error("header", 0) end
    at = at + 10
    if band(flags, 4) ~= 0 then
      if #data - at < 2 then error(CUT_SHORT, 0) end
      at = at + 2 + u16_le(data, at)
    end
    for _, flag in ipairs({8, 16}) do
      if band(flags, flag) ~= 0 then
        at = find_text(data, "\0", at + 1, true)
        if not at then error(CUT_SHORT, 0) end
      end
    end
    if band(flags, 2) ~= 0 then
      if #data - at < 2 then error(CUT_SHORT, 0) end
      if u16_le(data, at) ~= crc32(sub(data, begin + 1, at)) % 65536 then error("header", 0) end
      at = at + 2
    end
    local stop = undo(data, at, most, bytes)
    if #data - stop < 8 then error(CUT_SHORT, 0) end
    local text = text_of(bytes)
    if u32_le(data, stop) ~= crc32(text) or u32_le(data, stop + 4) ~= #text then error("checksum", 0) end
    return text, stop + 8
  end

  -- Returns the bytes inside one or more members, and whether they are only the beginning; or nil, and whether there are more than `most`.
  function inflate(data, most)
    local is_cut = #data > MOST_INFLATED
    if is_cut then data = sub(data, 1, MOST_INFLATED) end
    local texts, at, left = {}, 0, math.min(most, MOST_INFLATED)
    repeat
      local bytes = {}
      local is_good, text, stop = pcall(member, data, at, left, bytes)
      if not is_good then
        local is_beginning = text == TOO_LONG and most > MOST_INFLATED or text == CUT_SHORT and is_cut
        if not is_beginning then return nil, text == TOO_LONG end
        texts[#texts + 1] = text_of(bytes)
        return table.concat(texts), true
      end
      texts[#texts + 1], at, left = text, stop, left - #text
    until at >= #data
    return table.concat(texts), is_cut
  end
end
