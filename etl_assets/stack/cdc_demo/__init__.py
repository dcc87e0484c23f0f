"""The demo of a capture: `etl-assets demo --stack cdc` and `etl-assets dev --stack cdc`.

`example/` is a whole installation in YAML, to be read and copied. `shop.py` makes the database, `changes.py`
changes it as the shop's own program would, `comparison.py` holds each table against its source, and
`command.py` does all of it in order.
"""
