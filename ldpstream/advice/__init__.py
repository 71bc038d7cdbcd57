"""The adviser: finds a mechanism for a question, and an estimator with its post-processing or a number of bins."""
