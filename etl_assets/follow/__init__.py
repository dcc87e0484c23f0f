"""The follower: one resident process that carries new events through the tables as they arrive.

`lease.py` says which process follows, `pauses.py` holds the backoffs, `crew.py` runs the steps, `reports.py`
reports to Dagster, and `follower.py` is the loop. Only `reports.py` and `follower.py` know Dagster.
"""
