"""Test doubles, shipped so that users can test their own code: in-memory stores, and a folder that hangs."""
