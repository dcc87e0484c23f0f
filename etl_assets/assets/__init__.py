"""The assets of the data path.

An asset places its stage and returns the step; the IO manager runs the step.
"""
