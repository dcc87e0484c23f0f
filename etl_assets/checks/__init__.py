"""Asset checks: invariants between tables (blocking, from logs alone) and the full contract of a table."""
