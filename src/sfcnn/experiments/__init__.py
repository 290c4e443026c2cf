"""Experiments, each from settings to a table, a JSON file and a figure."""
