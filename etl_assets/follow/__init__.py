"""The follower: one resident process that carries new events through the tables as soon as they are there.

`lease.py` says who follows, `pauses.py` what is left alone for a while, `crew.py` has the steps run, `reports.py` tells
Dagster, and `follower.py` is the loop. It knows Dagster in `reports.py` and `follower.py` only.
"""
