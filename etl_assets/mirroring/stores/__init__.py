"""Stores: the few operations that the protocol needs of a folder or bucket, with time limits."""
