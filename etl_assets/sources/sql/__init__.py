"""Queries over databases as sources: what is new by an ascending key, read in ranges of it."""
