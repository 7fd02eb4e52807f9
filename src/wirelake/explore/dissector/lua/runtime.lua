-- The tree of a message, connections and streams.

-- Cut: adds the fields of one message to a tree. Its methods are those of `Tiling` in Python.
local Cut = {}
Cut.__index = Cut

function Cut.new(tvb, data, tree, start, stop)
  return setmetatable(
    {tvb = tvb, data = data, root = tree, at = start, start = start, stop = stop, last = start, last_size = 0, pieces = {}, values = {}},
    Cut
  )
end

function Cut:branch(column, group, start, size)
  local list = group and group ~= "" and column:match("^([^.]+)%.")
  if not list then return self.root end
  local known = self.group
  if not known or known.name ~= group then
    local item = self.root:add(FIELDS[list], self.tvb(start, size))
    item:set_text(group)
    known = {name = group, item = item, start = start, stop = start + size}
    self.group = known
  end
  if start + size > known.stop then
    known.stop = start + size
    known.item:set_len(known.stop - known.start)
  end
  return known.item
end

-- Adds a field over bytes of a buffer; returns its item.
function Cut:over(column, tvb, start, size, tree)
  local field, form = FIELDS[column], FORMS[column]
  if form == "number" or form == "number_le" then
    if size < 1 or size > 8 then return nil end
    if form == "number_le" then return tree:add_le(field, tvb(start, size)) end
    return tree:add(field, tvb(start, size))
  elseif form == "float" and size ~= 4 or form == "bool" and size ~= 1 then
    return nil
  elseif form == "text" then
    return tree:add_packet_field(field, tvb(start, size), ENC_UTF_8 + ENC_NA)
  end
  return tree:add(field, tvb(start, size))
end

function Cut:take(name, size, show, group, column)
  local start = self.at
  column = column or name:gsub(" ", "_")
  size = math.min(math.max(size, 0), self.stop - start)
  self.at = start + size
  if size == 0 and not COLUMNS[column] then return end
  local item = self:over(column, self.tvb, start, size, self:branch(column, group, start, size))
  if item and show then item:append_text(" (" .. show .. ")") end
  self.last, self.last_size = start, size
end

function Cut:until_(name, place, show, group, column)
  self:take(name, place - self.at, show, group, column)
end

function Cut:padding(place)
  self:take("padding", place - self.at)
end

function Cut:pair(_, place)
  self:take("pair", place - self.at)
end

function Cut:put(column, value, group)
  self.values[column] = value
  if column == "oddities" then return end -- added last: other messages may tell more
  local tree = self:branch(column, group, self.last, self.last_size)
  tree:add(FIELDS[column], self.tvb(self.last, self.last_size), WIDE[column] and UInt64.new(value) or value):set_generated()
end

function Cut:also(column, start, size, group)
  local item = self:over(column, self.tvb, start, size, self:branch(column, group, start, size))
  if item then item:set_generated() end
end

-- Adds bytes that are nowhere in the packet in one piece: joined, decoded or decompressed.
function Cut:made(column, bytes, name)
  local item
  if #bytes == 0 then
    item = self:over(column, self.tvb, self.stop, 0, self.root)
  else
    item = self:over(column, ByteArray.new(bytes, true):tvb(name), 0, #bytes, self.root)
  end
  if item then item:set_generated() end
end

function Cut:piece(column, start, size, is_last, first)
  local pending = self.pieces[column] or {}
  self.pieces[column] = pending
  pending[#pending + 1] = {start, size, first}
  if is_last then self:join(column) end
end

function Cut:join(column)
  local pending, joined = self.pieces[column], {}
  self.pieces[column] = nil
  local first = pending[1][3]
  if self.values[column] then first = nil end
  self.values[column] = true
  for _, name in ipairs(first and {first, column} or {column}) do
    if #pending == 1 then
      self:also(name, pending[1][1], pending[1][2])
    else
      joined = {}
      for index, one in ipairs(pending) do
        joined[index] = sub(self.data, one[1] + 1, one[1] + one[2])
      end
      self:made(name, table.concat(joined), "Joined " .. name)
    end
  end
end

function Cut:finish()
  for _, column in ipairs(JOINED) do
    if self.pieces[column] then self:join(column) end
  end
  if self.at < self.stop then self:take(REST, self.stop - self.at) end
end

function Cut:blame(fault)
  local rule = FAULTS[fault]
  self.root:add(FIELDS.fault, self.tvb(self.start, self.stop - self.start), rule.name):set_generated()
  self.root:add(FIELDS.clause, self.tvb(self.start, self.stop - self.start), rule.clause):set_generated()
  self.root:add_proto_expert_info(EXPERTS[rule.severity], rule.clause .. ": " .. rule.text .. " (" .. rule.name .. ")")
end

function Cut:say_more(size)
  self.root:add_proto_expert_info(EXPERTS.more, "Only the first " .. size .. " bytes are decompressed here: more is there")
end

-- Connections: recordings name them, of others addresses and ports are known.
local function optional_field(...)
  for _, name in ipairs({...}) do
    local is_there, field = pcall(Field.new, name)
    if is_there then return field end
  end
  return function() end
end

local info_of = optional_field("exported_pdu.col_info_text", "exported_pdu.col_info_str", "exported_pdu.unknown_tag.val")
local direction_of = optional_field("exported_pdu.p2p_dir")
local connections, snapshots = {}, {}

function PROTO.init()
  connections, snapshots = {}, {}
end

local function words_of_recording()
  local words = {}
  for _, info in ipairs({info_of()}) do
    local text = info.range:raw()
    if find_text(text, "connection=", 1, true) then
      for key, value in text:gmatch("([%w_]+)=([^ %z]*)") do
        words[key] = value:gsub("%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end)
      end
    end
  end
  return words
end

-- Returns the connection of a packet, the side that speaks, and the words of a recording.
local function side_of(pinfo)
  local words = words_of_recording()
  local source, target = tostring(pinfo.src) .. ":" .. pinfo.src_port, tostring(pinfo.dst) .. ":" .. pinfo.dst_port
  local name = words.connection or (source < target and source .. "-" .. target or target .. "-" .. source)
  local connection = connections[name]
  if not connection then
    connection = {client = source, sides = {[CLIENT] = {}, [SERVER] = {}}}
    if PORTS[pinfo.src_port] and not PORTS[pinfo.dst_port] then connection.client = target end
    connections[name] = connection
  end
  local direction = direction_of()
  local speaker = source == connection.client and CLIENT or SERVER
  if words.role and direction then
    speaker = (words.role == "client") == (direction.value == 0) and CLIENT or SERVER
  end
  return connection, speaker, words
end

-- Reads the whole messages of a buffer. Returns how many bytes are read, and how many the next message needs (0: unknown).
local function read_stream(tvb, pinfo, tree, is_stream)
  local data, length = tvb:raw(), tvb:len()
  local connection, speaker, words = side_of(pinfo)
  local side, at = connection.sides[speaker], 0
  local rows, parts = {n = ROW_COLUMNS}, {n = PART_COLUMNS * (MAX_PARTS + 1)}
  local names = {}
  while at < length do
    local place = pinfo.number .. "/" .. tvb:offset() .. "/" .. length .. "/" .. at
    local snapshot = snapshots[place]
    if not snapshot then
      snapshot = HOOKS.before(connection, speaker, words, data, at) or {}
      if HOOKS.is_stateful then snapshots[place] = snapshot end
    end
    local count, need, after = 0, 0, at
    if snapshot.limits then
      count, _, after, need = scan(data, at, length, rows, parts, snapshot.limits)
    else
      rows[START], rows[LENGTH], rows[KIND], rows[FAULT] = at, length - at, -1, snapshot.fault
      count, after = 1, length
    end
    if count == 0 then
      if is_stream then
        if not pinfo.visited then snapshots[place] = nil end
        local is_known = HOOKS.is_need_exact and need > length - at
        return at, is_known and need - (length - at) or DESEGMENT_ONE_MORE_SEGMENT, names
      end
      rows[START], rows[LENGTH], rows[KIND], rows[FAULT] = at, length - at, -1, CUT
      after = length
    elseif rows[FAULT] ~= 0 and rows[START] == after then -- the end of this message is not known
      after = find(data, at + 1, length, snapshot.limits)
      rows[LENGTH] = after - at
    end
    local root = tree:add(PROTO, tvb(at, rows[LENGTH]))
    local cut = Cut.new(tvb, data, root, at, at + rows[LENGTH])
    local fault = rows[FAULT]
    if UNREADABLE[fault] then
      cut:take("unreadable", rows[LENGTH])
      names[#names + 1] = "unreadable"
    else
      lay_out(cut, data, rows, parts)
      cut:finish()
      local name = cut.values.type_name or cut.values.type or "?"
      root:append_text(", " .. name)
      names[#names + 1] = name
      local found = HOOKS.after(cut, rows, parts, snapshot, side, pinfo, tree)
      if fault == 0 and found then fault = found end
      root:add(FIELDS.oddities, tvb(at, rows[LENGTH]), cut.values.oddities):set_generated()
    end
    if fault ~= 0 then cut:blame(fault) end
    if not pinfo.visited and not UNREADABLE[rows[FAULT]] then HOOKS.follow(connection, speaker, data, rows) end
    at = after
    if at == length then break end
  end
  return at, 0, names
end

local function dissect(tvb, pinfo, tree)
  if tvb:len() == 0 then return 0 end
  if HOOKS.is_carrier(tvb) then return 0 end -- Wireshark asks other dissectors then
  pinfo.cols.protocol = TITLE
  local at, missing, names = read_stream(tvb, pinfo, tree, pinfo.can_desegment > 0)
  if missing ~= 0 then
    pinfo.desegment_offset = at
    pinfo.desegment_len = missing
  end
  if #names > 0 then
    local most = 8
    pinfo.cols.info = table.concat(names, ", ", 1, math.min(#names, most)) .. (#names > most and ", …" or "")
  end
  return tvb:len()
end

PROTO.dissector = dissect

-- Ports, `Decode As…` and recognition by content. Exported PDUs name the dissector, and need no table.
for _, name in ipairs(TABLES) do
  local known, port_table = pcall(DissectorTable.get, name)
  if known and port_table then port_table:add(PORT, PROTO) end
end
for _, name in ipairs(HEURISTICS) do
  local is_carried = name == "ws"
  pcall(PROTO.register_heuristic, PROTO, name, function(tvb, pinfo, tree)
    if tvb:len() == 0 then return false end
    local connection = is_carried and side_of(pinfo) or {}
    if not connection.is_recognised and not HOOKS.recognise(tvb:raw(), tvb:len()) then return false end
    connection.is_recognised = true
    if not is_carried then pinfo.conversation = PROTO end -- later packets need no recognition; those of a carrier stay with it
    dissect(tvb, pinfo, tree)
    return true
  end)
end
