"""Servers that the project starts by itself, without containers: for its demo, for development and for tests.

A module for each server: its binaries, its settings, when it is ready. `server.py` says what all of them
have, `managed.py` is the life they share, `process.py` the process that each is. `jar_set.py` fetches the
pinned jars of those that run on Java. Nothing here is for production, and nothing listens beyond 127.0.0.1.
"""
