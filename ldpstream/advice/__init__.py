"""The adviser finds a mechanism for a question: for values also an estimator and its post-processing, for numbers the bins."""
