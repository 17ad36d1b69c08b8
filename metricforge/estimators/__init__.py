"""The scikit-learn shell: estimators around `metricforge.learn`."""
