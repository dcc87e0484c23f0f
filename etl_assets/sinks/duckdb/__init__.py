"""The DuckDB sink: a table in a file that follows a table of the platform."""
