"""The webhook sink: one HTTP call for each row."""
