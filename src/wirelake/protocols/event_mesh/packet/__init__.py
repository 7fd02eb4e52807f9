"""The fields of an Event Mesh packet: layout, required fields, values, building."""
