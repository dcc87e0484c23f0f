"""The demo over real servers: `etl-assets demo --stack full` and `etl-assets dev --stack full`.

`example/` is a whole installation in YAML, to be read and copied. `installation.py` writes it into a home
folder, `feed.py` sends events to its sources, `targets.py` reads what arrived in its sinks, `comparison.py`
holds both against the tables, and `command.py` does all of it in order. Nothing else imports this package.
"""
