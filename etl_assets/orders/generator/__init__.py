"""Test data: an event generator, a converter of real orders, and the writer of landing files.

Knows no Spark and no Dagster.
"""
