"""One Delta table kept in several failure domains, agreed on through a small register in each of them.

Belongs here: the protocol (docs/mirroring.md) over plain storage. Does not belong here: Spark, Dagster,
health, and the policy for which domain should lead.
"""

from __future__ import annotations
