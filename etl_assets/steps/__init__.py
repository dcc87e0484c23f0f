"""Steps of the data path: read what is new, transform it, commit it. One module per table; no Dagster.

The caller gives a step the days and how to read (`ReadMode`); the step returns a `StepReport`. A step may run
any number of times.
"""
