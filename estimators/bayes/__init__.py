"""The empirical-Bayes estimate of shares without order."""
