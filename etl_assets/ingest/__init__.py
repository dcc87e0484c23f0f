"""Ingest: from files of a landing folder to accepted rows and rejected records, in batches.

Belongs here: planning, reading and validating a batch, and committing it. Does not belong here: the location
of files (`sources/`), and the processing of accepted rows (`orders/steps/`).
"""
