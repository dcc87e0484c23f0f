"""What the platform needs from the machine and pip cannot bring: a Java runtime, Delta's two jars, the archive of classes.

Belongs here: finding, installing, fetching and checking them, before any session exists. Does not belong here: Spark's
settings and sessions (`etl_assets.resources`), and anything that imports Dagster or pyspark.
"""
