"""The tables of the orders pipeline, one module a table."""
