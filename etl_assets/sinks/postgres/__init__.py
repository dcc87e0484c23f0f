"""The sink of type postgres: a table in PostgreSQL, exactly once."""
