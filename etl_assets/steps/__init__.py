"""The steps of the data path: read what is new, transform, commit. One module a table; no Dagster.

A step is told the days and how to read (`ReadMode`), and returns a `StepReport`. It may be run any number of times.
"""
