"""Timings side by side in one run: what the library gains over what a researcher would write."""
