"""Access to one Delta table: snapshot, lock, upsert, commit, cursor, offsets. Knows no Dagster."""
