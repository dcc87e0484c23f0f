"""Ingest: from files of a landing folder to accepted rows and rejected records, in batches.

Belongs here: planning, reading and validating a batch, and committing it. Does not belong here: where files are
(`sources/`), and what happens to accepted rows (`orders/steps/`).
"""
