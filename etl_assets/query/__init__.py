"""Reading the platform's tables: by SQL, and by other programs. No Dagster, no JVM.

Belongs here: which version of a table is read and where, which reader supports its features, and queries over
several tables. Does not belong here: showing results (`cli/`) and the rows that steps read
(`delta/read/rows.py`).
"""
