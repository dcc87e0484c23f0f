"""The same work done by the platform and by hand, side by side: `python -m benchmarks [CASE]`. See
README.md.
"""
