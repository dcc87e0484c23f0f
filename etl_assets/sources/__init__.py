"""Where events come from, and what of it has been read. Knows no Dagster."""
