"""Sinks: targets outside the platform that follow a table.

A sink's module knows its target's protocol and nothing of Dagster and Spark. What is delivered, and when, is
decided by the step (`steps/deliver.py`).
"""
