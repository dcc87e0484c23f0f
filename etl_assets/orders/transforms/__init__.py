"""Transforms of the orders pipeline: DataFrame to DataFrame, pure."""
