"""Orders: the first pipeline of the platform.

Belongs here: whatever knows an orders table or an order event by name. Modules outside that still do are listed in a test
(`etl_assets_tests/unit/test_orders_apart.py`); the list only gets shorter.
"""
