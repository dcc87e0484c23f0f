"""Pipelines over the film-rental sample, one a file."""
