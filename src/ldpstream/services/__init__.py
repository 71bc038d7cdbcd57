"""The processes that connect the rooms: the demo, `serve`, the estimator, `move`; `trial/`: `try`."""
