"""The tables of the orders pipeline, one module per table."""
