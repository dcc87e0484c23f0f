"""The capture of the example."""
