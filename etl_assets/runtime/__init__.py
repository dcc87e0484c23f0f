"""Parts of the machine that the platform needs and pip cannot install:

Java, Delta's two jars, the class archive.

Belongs here: finding, installing, fetching and checking them, before any session exists. Does not belong
here: Spark's settings and sessions (`etl_assets.resources`), and anything that imports Dagster or pyspark.
"""
