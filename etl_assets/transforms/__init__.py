"""Rows to rows, of Spark's frames or Arrow's tables, pure: no reads, no writes, no clock. Knows no Dagster."""
