"""What the platform did, in figures: read from tables' logs, shown to people and machines. Knows no Dagster."""
