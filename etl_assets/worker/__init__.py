"""The worker: one resident process that carries new events through the tables as they arrive.

`lease.py` says which process is the worker, `turns.py` which pipelines its threads work on, `failed_work.py`
and `pauses.py` what backs off, `source_look.py` looks for new records, `step_runner.py` runs the steps,
`deliveries.py` delivers to sinks, `carried_runs.py` and `run_ends.py` obey run control, `reports.py` and
`invariant_watch.py` report to Dagster, and `worker.py` is the loop. Only `reports.py` and `worker.py` know
Dagster.
"""
