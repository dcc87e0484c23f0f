"""Orders: the first pipeline of the platform.

Belongs here: whatever knows an orders table or an order event by name.
"""
