"""The control plane: which run of a pipeline is asked for, under way, paused, canceled or failed.

`states.py` has the states and actions, `transitions.py` the one table of what leads where, `change.py` what
an action does to a pipeline's row and its runs: pure decisions. `store.py`, `schema.py`, `rows.py`,
`migrate.py` and `migrations/` keep the rows; `run_controls.py` is what callers use. `definitions.py` keeps
declarations that come over REST; `routes/` is the REST API, on top of `etl_assets/serve`.

Knows neither Dagster nor Spark. What carries a run is the worker's business (`worker/`).
"""
