"""Captures: many tables of one PostgreSQL database, followed by one slot and one reader."""
