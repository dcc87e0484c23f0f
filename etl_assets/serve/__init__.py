"""The HTTP server: routes, tokens, problem details, and the journal of what clients send.

`app.py` wires it. A route belongs into a module of its own (`events.py`, `health.py`), which gets the
`Service`. FastAPI and uvicorn are imported inside this package only.
"""
