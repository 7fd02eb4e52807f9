-- Relink: both sides say how long channel ids are; the handshake is followed for that (RELINK-6, RELINK-7).

PROTO.prefs.handshake = Pref.bool("Connections begin with the handshake", true, "Switch off for captures that begin later")
PROTO.prefs.connector_id_size = Pref.uint("Connector's channel id size", 0, "For captures without a handshake: bytes")
PROTO.prefs.listener_id_size = Pref.uint("Listener's channel id size", 0, "For captures without a handshake: bytes")

local NEXT_STAGE = {
  [CLIENT] = {[VERSION_KIND] = REQUEST_STAGE, [REQUEST_KIND] = PACKETS_STAGE},
  [SERVER] = {[VERSION_KIND] = REPLY_STAGE, [REPLY_KIND] = PACKETS_STAGE},
}

function HOOKS.before(connection, speaker)
  if not connection.stages then
    local first = PROTO.prefs.handshake and VERSION_STAGE or PACKETS_STAGE
    connection.stages = {[CLIENT] = first, [SERVER] = first}
    if not PROTO.prefs.handshake then
      connection.sizes = {[CLIENT] = PROTO.prefs.connector_id_size, [SERVER] = PROTO.prefs.listener_id_size}
    end
  end
  local stage, sizes = connection.stages[speaker], connection.sizes
  if stage == PACKETS_STAGE and not sizes then return {fault = FAULT_ID_SIZES_UNKNOWN} end
  local limits = {[0] = LIMITS[0], LIMITS[1], LIMITS[2], LIMITS[3], LIMITS[4], stage, 0, 0}
  if stage == PACKETS_STAGE then limits[6], limits[7] = sizes[speaker], sizes[1 - speaker] end
  return {limits = limits}
end

function HOOKS.follow(connection, speaker, data, row)
  local stage = connection.stages[speaker] ~= PACKETS_STAGE and NEXT_STAGE[speaker][row[KIND]]
  if not stage then return end
  connection.stages[speaker] = stage
  if row[KIND] == REQUEST_KIND then
    connection.sizes = {[CLIENT] = octet(data, row[IDS] + 1), [SERVER] = octet(data, row[IDS] + 2)}
  end
end

function HOOKS.after(cut, row)
  if row[KIND] ~= REQUEST_KIND then return nil end
  local pending = utf8(cut.data, row[BODY], row[BODY] + row[BODY_LENGTH], 0)
  return pending ~= 0 and FAULT_ENDPOINT_NOT_UTF8 or nil
end

local function is_request(data, length)
  if length <= UNIT then return false end
  local name_size = octet(data, UNIT + 1)
  local name_end = UNIT + 1 + name_size
  local start = UNIT + math.floor((name_size + 4 + UNIT - 1) / UNIT) * UNIT
  if length < start + LINK or octet(data, name_end + 3) > 7 or octet(data, start + LINK) >= 128 then return false end
  if find_text(sub(data, name_end + 4, start), "[^%z]") or find_text(sub(data, UNIT + 2, name_end), "[%c]") then return false end
  if utf8(data, UNIT + 1, name_end, 0) ~= 0 then return false end
  local epoch, link = i64_le(data, start), i64_le(data, start + 8)
  if link ~= 0 and epoch == 0 then return false end
  return name_size > 0 or (link > 0 and epoch >= FIRST_EPOCH and epoch < LAST_EPOCH)
end

local function is_reply(data, length)
  if length < UNIT + LINK then return false end
  local epoch, link = i64_le(data, UNIT), i64_le(data, UNIT + 8)
  return epoch >= FIRST_EPOCH and epoch < LAST_EPOCH and link > 0
end

function HOOKS.recognise(data, length)
  return sub(data, 1, UNIT) == string.rep("\0", UNIT) and (is_request(data, length) or is_reply(data, length))
end
