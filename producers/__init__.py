"""Who answers: simulated populations of devices, where their true values come from, and where their reports go."""
