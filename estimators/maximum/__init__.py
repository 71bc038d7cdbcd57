"""The maximum of the likelihood: IBU, MLE, EMS, their standard errors."""
