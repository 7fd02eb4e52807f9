"""Intermediate DataFrames that several gold tables share."""
