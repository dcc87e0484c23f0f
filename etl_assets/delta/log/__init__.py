"""The log of a table: its entries, cursors, checkpoints and features, and the texts that they keep values
as.
"""
