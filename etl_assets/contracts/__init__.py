"""Contracts: what each table and each event holds, declared once.

Spark types, Delta schema, row rules, the pandera model, Dagster's column metadata and docs/tables.md all
follow from the declarations in `tables/`. Nothing here knows Dagster or a Spark session, and importing it
imports neither pyspark nor pandera.
"""
