"""Metrics and state of the platform, read from tables' logs for people and machines. Knows no Dagster."""
