"""Migrations of the control store, for Alembic."""
