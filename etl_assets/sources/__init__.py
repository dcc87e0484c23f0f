"""Sources of events, and the record of what has been read from them. Knows no Dagster."""
