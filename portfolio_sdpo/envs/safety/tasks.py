"""Names of the suite's robots, tasks and signals, which need no MuJoCo to be listed."""

ROBOTS = ("Point", "Car", "Doggo")
TASKS = tuple(f"{robot}{task}{level}" for robot in ROBOTS for task in ("Goal", "Button", "Push") for level in (1, 2))
"""The paper's eighteen."""
SIGNALS = ("cost", "hazards", "vases", "buttons", "gremlins", "pillars")
HORIZON = 1000
"""Steps of an episode, the suite's."""
