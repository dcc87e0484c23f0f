"""The control plane: what pipelines are to do, and what they do."""
