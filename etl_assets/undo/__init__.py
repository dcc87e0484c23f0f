"""Undo: a table to an older version, or days out of tables, and what was made of the rows that go.

Belongs here: planning from logs, and the commits. Does not belong here: how the commands preview it (`cli/`).
"""
