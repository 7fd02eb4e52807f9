-- wolpertinger: payloads in base64, fragments, and the elements of documents. Encrypted payloads stay encrypted.

local DIGITS = {}
for index = 1, 64 do
  DIGITS[octet("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", index)] = index - 1
end

-- WOLP-6: bytes of base64 without its blanks; nil if it is none.
local function from_base64(text)
  text = text:gsub("[ \t\r\n]", "")
  local digits, padding = text:match("^([A-Za-z0-9+/]*)(=*)$")
  if not digits or #digits % 4 == 1 then return nil end
  -- Whole groups may be followed by any padding, as the decoder of Python accepts it; others need exactly theirs.
  if #digits % 4 ~= 0 and #padding ~= 4 - #digits % 4 or #digits == 0 and #padding > 0 then return nil end
  local pieces = {}
  for at = 1, #digits, 4 do
    local a, b, c, d = octet(digits, at, at + 3)
    local number = ((DIGITS[a] * 64 + DIGITS[b]) * 64 + (c and DIGITS[c] or 0)) * 64 + (d and DIGITS[d] or 0)
    local one = string.char(math.floor(number / 65536), math.floor(number / 256) % 256, number % 256)
    pieces[#pieces + 1] = d and one or sub(one, 1, c and 2 or 1)
  end
  return table.concat(pieces)
end

-- WOLP-7: the bytes of a payload in clear, and whether they are only the beginning; or nil and a fault.
local function opened(text, gzip)
  local payload = from_base64(text)
  if not payload then return nil, FAULT_BASE64_INVALID end
  if gzip < 0 then return payload end
  if gzip ~= #payload then return nil, FAULT_GZIP_INVALID end
  local plain, is_more = inflate(payload, MAX_INFLATED_SIZE)
  if not plain then return nil, is_more and FAULT_INFLATED_OVER_LIMIT or FAULT_GZIP_INVALID end
  return plain, is_more
end

-- WOLP-9: adds a fragment to those of its sender; returns the payload of a whole message, or nil and a fault.
local function join(side, row, payload, now)
  local sets, weight = side.sets or {}, side.weight or 0
  local id, index, count = row[MESSAGE_ID], row[FRAGMENT_INDEX], row[FRAGMENT_COUNT]
  local function drop(name)
    weight = weight - sets[name].weight
    sets[name] = nil
    side.kept = side.kept - 1
  end
  side.sets, side.kept = sets, side.kept or 0
  for name, known in pairs(sets) do
    if known.due <= now then drop(name) end
  end
  local head = row[GZIP] .. "/" .. (row[ENCRYPTION] == SECURE_AES and AES or row[ENCRYPTION]) .. "/" .. count
  local function refuse(known, fault)
    weight = weight - known.weight
    known.weight, known.refused = 0, true
    known.pieces[index] = known.pieces[index] or ""
    local waiting = 1
    for _ in pairs(known.pieces) do waiting = waiting + 1 end
    known.due = now + FRAGMENT_TIMEOUT * math.min(count, waiting)
    side.weight = weight
    return nil, fault
  end
  local known = sets[id]
  if known and known.refused then
    if not known.pieces[index] then
      known.pieces[index] = ""
      return nil, FAULT_FRAGMENT_LATE
    end
    drop(id)
    known = nil
  end
  if not known then
    if side.kept >= MAX_INCOMPLETE then return nil, FAULT_FRAGMENTS_OVER_LIMIT end
    known = {pieces = {}, head = head, weight = 0, count = 0, due = now + FRAGMENT_TIMEOUT * count}
    sets[id], side.kept = known, side.kept + 1
  elseif known.head ~= head then
    return refuse(known, FAULT_FRAGMENT_CONFLICT)
  end
  if known.pieces[index] then
    if known.pieces[index] == payload then return nil, 0 end
    return refuse(known, FAULT_FRAGMENT_CONFLICT)
  end
  if weight + #payload + OVERHEAD > MAX_WEIGHT then return refuse(known, FAULT_FRAGMENTS_OVER_LIMIT) end
  known.pieces[index], known.count = payload, known.count + 1
  known.weight, weight = known.weight + #payload + OVERHEAD, weight + #payload + OVERHEAD
  local whole
  if known.count == count then
    local pieces = {}
    for at = 0, count - 1 do pieces[at + 1] = known.pieces[at] end
    whole = table.concat(pieces)
    drop(id)
  end
  side.weight = weight
  return whole, 0
end

local ENTITIES = {amp = "&", lt = "<", gt = ">", quot = '"', apos = "'"}

-- The root of a document, and the text of each element right below it. It does not check the document.
local function elements_of(document)
  local at, depth, root, texts, open = 1, 0, nil, {}, nil
  while true do
    local start, stop, closing, name, rest = find_text(document, "<(/?)([%w_.:-]+)([^<>]*)>", at)
    if not start then return root, texts end
    name = name:gsub("^.*:", "")
    if open and depth == 2 and closing == "/" then
      local text = sub(document, at, start - 1)
      text = text:gsub("&(%a+);", ENTITIES)
      texts[name] = texts[name] or text
    end
    if closing == "/" then
      depth = depth - 1
      open = nil
    else
      depth = depth + 1
      if depth == 1 then root = root or name end
      open = depth == 2 or nil
      if rest:match("/$") then
        if depth == 2 then texts[name] = texts[name] or "" end
        depth, open = depth - 1, nil
      end
    end
    at = stop + 1
  end
end

local function show_document(cut, document, pinfo, tree)
  cut:made("document", document, "Document")
  local root, texts = elements_of(document)
  if not ROOTS[root] then return end
  cut:put("root", root)
  cut:put("component", texts.ComponentName or "")
  if root == "RemoteMethodCall" and texts.MethodName then cut:put("method", texts.MethodName) end
  if texts.CallId then cut:put("call_id", texts.CallId:lower()) end
  local digits = root == "RemoteError" and (texts.ErrorCode or ""):match("^%s*(%d+)%s*$")
  if digits and #digits < 16 then
    local code = tonumber(digits, 10)
    cut:put("error_code", code)
    if ERROR_NAMES[code] then cut:put("error_name", ERROR_NAMES[code]) end
  end
  local xml = Dissector.get("xml")
  if xml and #document > 0 then
    pcall(function() xml:call(ByteArray.new(document, true):tvb("Document"), pinfo, tree) end)
  end
end

function HOOKS.before(_, _, words, data)
  if words.transport == "xmpp" and sub(data, -1) ~= "\n" then return {limits = {[0] = LIMITS[0], LIMITS[1], 0}} end
  return {limits = LIMITS}
end

function HOOKS.after(cut, row, _, snapshot, side, pinfo, tree)
  if row[KIND] == RESULT_KIND then return nil end
  local payload = sub(cut.data, row[PAYLOAD] + 1, row[PAYLOAD] + row[PAYLOAD_LENGTH])
  local is_piece = row[KIND] == FRAGMENT_KIND and row[FRAGMENT_COUNT] ~= 1
  if is_piece then
    if not snapshot.joined then
      local whole, fault = join(side, row, payload, pinfo.abs_ts)
      snapshot.joined = {whole = whole, fault = fault}
    end
    local fault = snapshot.joined.fault
    if fault == FAULT_FRAGMENT_LATE then
      cut.values.oddities = cut.values.oddities + ODD_LATE
      return nil
    elseif fault ~= 0 then
      return fault
    end
    payload = snapshot.joined.whole
    if not payload then return nil end
  end
  if row[ENCRYPTION] ~= 0 then
    local sealed = from_base64(payload)
    if not sealed then return FAULT_BASE64_INVALID end
    local is_whole = #sealed > 0 and #sealed % BLOCK_SIZE == 0
    return (row[ENCRYPTION] == UNKNOWN_ENCRYPTION or not is_whole) and FAULT_ENCRYPTION_FAILED or nil -- WOLP-8
  end
  local document, problem = opened(payload, row[GZIP])
  if not document then return problem end
  show_document(cut, document, pinfo, tree)
  if problem then cut:say_more(#document) end
  return nil
end

local BEGINNINGS = {"^message_id:%d+;", "^fragment_index:%d+;", "^fragment_count:%d+;", "^result:%d+;", "^gzip:%d+;", "^encryption:aes;", "^secure:aes;"}

function HOOKS.recognise(data)
  local start = sub(data, 1, 32):lower()
  for _, pattern in ipairs(BEGINNINGS) do
    if find_text(start, pattern) then return true end
  end
  return false
end
