"""Reading the platform's tables: by SQL, and by other programs. No Dagster, no JVM.

Belongs here: which version of a table is read and where, which reader knows its features, and queries over several tables. Does not
belong here: how results are shown (`cli/`) and the rows that steps read (`delta/rows.py`).
"""
