"""Tables to people: SQL queries, the HTML report, messages of one capture."""
