"""Undo: set tables back to older versions, or take days out of them.

Rows that were derived from the removed ones are removed as well.

Belongs here: planning from logs, and the commits. Does not belong here: how the commands preview an undo
(`cli/`).
"""
