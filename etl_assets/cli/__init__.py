"""The command line: `etl-assets`. One module a command group; `main.py` puts them together."""
