"""The worker: one resident process that carries new events through the tables as they arrive.

`lease.py` says which process is the worker, `pauses.py` holds the backoffs, `step_runner.py` runs the steps,
`deliveries.py` delivers to sinks, `carried_runs.py` and `run_ends.py` obey run control, `reports.py` and
`invariant_watch.py` report to Dagster, and `worker.py` is the loop. Only `reports.py` and `worker.py` know
Dagster.
"""
