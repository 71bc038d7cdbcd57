"""The server's reading of a mechanism's counts: likelihood, inversion, covariance, fit."""
