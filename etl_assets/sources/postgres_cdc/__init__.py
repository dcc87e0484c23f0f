"""Change data capture from PostgreSQL's log: messages of `pgoutput`, and their values as Arrow columns."""
