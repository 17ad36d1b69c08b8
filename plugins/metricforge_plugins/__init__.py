"""The methods and engines that ship with metricforge, each found through the same hook as a stranger's plugin."""
