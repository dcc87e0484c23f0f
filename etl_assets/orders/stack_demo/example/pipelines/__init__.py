"""The pipelines of the example: YAML only."""
