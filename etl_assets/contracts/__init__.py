"""Contracts: the content of each table and each event, declared once.

Spark types, Delta schema, row rules, the pandera model, Dagster's column metadata and docs/tables.md all
follow from the declarations in `tables/`. These modules know neither Dagster nor a Spark session, and
importing them imports neither pyspark nor pandera.
"""
