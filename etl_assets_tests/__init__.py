"""The tests: `unit` needs neither Spark nor a server, `spark` shares one session, `e2e` does what a user
does.
"""
