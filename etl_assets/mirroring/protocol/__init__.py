"""The protocol: what a voter records, how a version is agreed on, who leads, and what may be read."""
