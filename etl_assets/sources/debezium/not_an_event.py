"""What is raised for a record that is no change event."""

from __future__ import annotations


class NotAnEvent(ValueError):
    """A record cannot be used as a change event. Its text says why, and what to change."""
