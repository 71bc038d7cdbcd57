"""The privacy audit: measures the loss of each mechanism from samples."""
