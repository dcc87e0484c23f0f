"""Maintenance of a table: few large files, and none that no version needs."""
