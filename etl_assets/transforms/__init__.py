"""DataFrame to DataFrame, pure: no reads, no writes, no clock. Knows no Dagster."""
