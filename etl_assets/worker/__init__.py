"""The worker: one resident process that carries new events through the tables as they arrive.

`lease.py` says which process is the worker, `pauses.py` holds the backoffs, `step_runner.py` runs the steps,
`reports.py` reports to Dagster, and `worker.py` is the loop. Only `reports.py` and `worker.py` know Dagster.
"""
