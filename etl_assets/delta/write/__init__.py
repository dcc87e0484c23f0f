"""Writes to a table: rows and cursors in one durable commit, by Delta's writer or as a computed entry."""
