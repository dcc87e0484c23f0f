"""What a case runs in fresh processes: `python -m benchmarks.scripts.<name> JSON`, with marks on the way."""
