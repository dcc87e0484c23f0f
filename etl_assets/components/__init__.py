"""Components of users' Dagster projects: `etl_assets.Pipeline` and `etl_assets.Platform`.

Importing them imports neither Spark nor optional packages.
"""
