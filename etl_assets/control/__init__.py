"""The control plane's core: which run of a pipeline is asked for, under way, paused, canceled or failed.

`states.py` has the states and actions, `transitions.py` the one table of what leads where, `change.py` what
an action does to a pipeline's row and its runs: pure decisions. `store.py`, `schema.py`, `rows.py`,
`migrate.py` and `migrations/` keep the rows; `run_controls.py` is what callers use.

Knows neither Dagster nor Spark. What carries a run is the worker's business (`worker/`).
"""
