"""The command line, `etl-assets`: one module per command group, assembled by `main.py`."""
