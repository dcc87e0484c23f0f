"""Sensors: they start runs, and write alerts about failures."""
