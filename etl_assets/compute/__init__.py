"""Where work is done: in this process, or in Spark's workers."""
