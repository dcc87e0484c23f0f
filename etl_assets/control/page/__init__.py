"""The status page: pipelines with their states, runs, tables and dead letters, and the actions of the API.

Pages are made by the server and need no script. `access.py` says who may see them, `routes.py` what is asked
for, `page.py` how it is shown, and `templates/` has the HTML.
"""
