"""Pipelines as values: what is declared of one, and the catalog of all that an installation runs.

Belongs here: frozen values, and questions that they answer by themselves. Does not belong here: I/O, Spark,
Dagster, and the pipelines themselves (`etl_assets/orders/` is the first).
"""
