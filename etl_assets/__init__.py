"""A Dagster asset platform that takes events in, makes each count exactly once, and keeps doing so.

Belongs here: the version. Does not belong here: imports of any kind, so that every command pays only for what it uses.
"""

from __future__ import annotations

__version__ = "0.1.0"
