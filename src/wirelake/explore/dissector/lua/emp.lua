-- EMP: the dialect of sizes, compressed bodies.

local NAMES_DIALECT = "sizes_exclude_themselves"
PROTO.prefs.sizes_exclude_themselves = Pref.bool("Sizes exclude themselves", false, "EMP-1: for peers whose sizes do not count the size field")

function HOOKS.before(connection, speaker, words, data, at)
  local side = connection.sides[speaker]
  if side.excludes == nil then
    side.excludes = PROTO.prefs.sizes_exclude_themselves
      or find_text(words.dialect or "", NAMES_DIALECT, 1, true) ~= nil
      or sub(data, at + 1, at + 5) == "\0\0\0\8\0"
  end
  return {limits = {[0] = LIMITS[0], LIMITS[1], LIMITS[2], side.excludes and 4 or 0}}
end

function HOOKS.after(cut, row, parts)
  if row[KIND] == ERROR_TYPE then
    local pending = utf8(cut.data, row[BODY] + ERROR_TEXT, row[BODY] + row[BODY_LENGTH], 0)
    return pending ~= 0 and FAULT_ERROR_NOT_UTF8 or nil
  end
  if row[SCHEME] < 0 or row[KIND] < DATA_TYPE then return nil end
  local body, is_beginning = sub(cut.data, row[BODY] + 1, row[BODY] + row[BODY_LENGTH]), false
  for index = row[PARTS] - 1, 0, -1 do
    local at = (row[PART] + index) * PART_COLUMNS
    if parts[at + PART_ID] == COMPRESSION_ID then
      local scheme = octet(cut.data, parts[at + PART_START] + HEADER + 1)
      if scheme == GZIP_SCHEME then
        local plain, is_more = inflate(body, MAX_BODY_SIZE)
        if not plain then return is_more and FAULT_INFLATED_OVER_LIMIT or FAULT_GZIP_INVALID end
        body, is_beginning = plain, is_more
        if is_beginning then break end
      elseif scheme ~= IDENTITY_SCHEME then
        return FAULT_SCHEME_UNKNOWN
      end
    end
  end
  cut:made("plain_body", body, "Decompressed body")
  if is_beginning then cut:say_more(#body) end
  return nil
end

function HOOKS.recognise(data, length)
  if sub(data, 1, 12) == "\0\0\0\8\0\0\0\0\1\0\0\0" then return true end
  return sub(data, 1, 5) == "\0\0\0\12\0" and (length < 9 or octet(data, 9) == 1)
end
