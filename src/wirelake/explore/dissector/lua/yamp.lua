-- YAMP: the serializer that each side names first is that of its bodies (YAMP-11).

PROTO.prefs.one_byte_redirect_size = Pref.bool("One-byte redirect size", false, "YAMP-1: for peers whose close-redirect has one byte for the size of the url")

function HOOKS.before(connection, speaker, words)
  local is_short = PROTO.prefs.one_byte_redirect_size or find_text(words.dialect or "", "one_byte_redirect_size", 1, true) ~= nil
  local header = is_short and CLOSE_HEADER - 1 or CLOSE_HEADER
  return {limits = {[0] = LIMITS[0], header}, serializer = connection.sides[speaker].serializer}
end

function HOOKS.after(cut, row, _, snapshot)
  if row[KIND] >= EVENT_TYPE and row[KIND] ~= CANCEL_TYPE and snapshot.serializer then
    cut:put("body_serializer", snapshot.serializer)
  end
  return nil
end

function HOOKS.follow(connection, speaker, data, row)
  local side = connection.sides[speaker]
  if row[KIND] == HANDSHAKE_TYPE and row[FAULT] == 0 and not side.serializer then
    side.serializer = sub(data, row[BODY] + 1, row[BODY] + row[BODY_LENGTH])
  end
end

-- YAMP-14: a WebSocket begins with HTTP; Wireshark's own dissectors unwrap it, and hand each message back.
function HOOKS.is_carrier(tvb)
  local start = tvb:raw(0, math.min(5, tvb:len()))
  return sub(start, 1, 4) == "GET " or start == "HTTP/"
end

function HOOKS.recognise(data, length)
  if sub(data, 1, 3) ~= "\0\0\1" or length < 4 then return false end
  local stop = 4 + octet(data, 4)
  if find_text(sub(data, 5, stop), "[^!-~]") then return false end
  local following = octet(data, stop + 1) or 1
  return following > HANDSHAKE_TYPE and following <= LAST_TYPE
end
