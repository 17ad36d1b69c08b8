"""The methods that ship with metricforge, each found through the same entry points as a stranger's plugin."""
