"""Pipelines of users' own Dagster projects."""
