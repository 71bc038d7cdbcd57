"""The gateway's HTTP: requests, answers, problems, and the document of the API."""
