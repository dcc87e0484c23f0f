"""The steps of the orders pipeline: read, transform, commit. No Dagster."""
