"""An installation with one capture of many tables: YAML only."""
