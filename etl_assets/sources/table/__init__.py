"""A table of the catalog as a source: its changes, version by version."""
