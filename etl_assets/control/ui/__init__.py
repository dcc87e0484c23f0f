"""The Dagster UI behind the login: requests and websockets are passed on to Dagster's webserver.

`routes.py` says what is passed on and who may ask for it. `operations.py` finds out what a GraphQL request
does, `headers.py` which headers pass, `webserver.py` speaks HTTP with the webserver, and `live_updates.py`
has the websocket of a page.
"""
