"""Where work may run and tables live: failure domains. Knows neither Dagster nor Spark."""
