"""Benchmarks: speed and memory as ratios against named peers, measured in one run.

``python -m benchmarks.run`` lists them.
"""
