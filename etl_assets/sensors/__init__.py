"""Sensors: what starts runs, and what is said when runs fail."""
