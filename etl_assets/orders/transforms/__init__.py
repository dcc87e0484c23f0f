"""Transforms of the orders pipeline: pure functions from frames, or Arrow tables, to the same."""
