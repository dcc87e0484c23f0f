"""A mirrored table as the steps use it: registered, replicated, and its status."""
