"""Placement of stages and tables in failure domains. Knows neither Dagster nor Spark."""
