-- Event Mesh: every datagram is one packet.

function HOOKS.recognise(data, length)
  local row, parts = {n = ROW_COLUMNS}, {n = PART_COLUMNS * (MAX_PARTS + 1)}
  scan(data, 0, length, row, parts, LIMITS)
  return row[FAULT] == 0 and row[PARTS] > 0 and row[KIND] >= FIRST_TYPE and row[KIND] <= LAST_TYPE
end
