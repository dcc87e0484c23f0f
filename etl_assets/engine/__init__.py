"""The engine: a process that keeps Spark and the platform's definitions warm, and executes runs in children of its own.

`engine.py` is that process, `spark_server.py` its Spark, `run.py` what a child does, `ipc.py` how a run gets to it,
`code_version.py` whether what it has loaded still holds. Nothing depends on it: a run that it does not take is launched as
without it. See docs/decisions/0027-a-warm-engine.md.
"""
