"""Maintenance of replicas: scrub, comparison by bytes, and truncation of the agreed log."""
