"""Upkeep of the replicas of mirrored tables: reconcile them, scrub them, change which domains have one.

Belongs here: rounds over all tables. Does not belong here: the protocol (`mirroring/`), and single tables
(`delta/`).
"""
