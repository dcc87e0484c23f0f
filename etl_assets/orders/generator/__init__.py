"""Making events: a generator, a converter of real orders, and the writer of landing files. No Spark, no Dagster."""
