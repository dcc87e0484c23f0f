"""Pure functions from rows to rows, for Spark frames or Arrow tables.

They read and write nothing, use no clock, and know no Dagster.
"""
