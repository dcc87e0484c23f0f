"""Reads of a table: the files that a range of rows needs, their rows, and the index of its keys."""
