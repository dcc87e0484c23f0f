"""Orders: the first pipeline of the platform.

Belongs here: all code that knows an orders table or an order event by name. A test lists the modules outside
that still do (`etl_assets_tests/unit/test_orders_apart.py`); the list may only get shorter.
"""
