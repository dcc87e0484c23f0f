"""The engine: a process that keeps Spark and the platform's definitions warm, and runs Dagster runs in forks.

`engine.py` is the process, `spark_server.py` its Spark, `run.py` the work of a child, `ipc.py` the submission
of a run, and `code_version.py` the check whether its loaded code is current. Nothing depends on the engine: a
run that it refuses is launched without it. See docs/decisions/0027-a-warm-engine.md.
"""
