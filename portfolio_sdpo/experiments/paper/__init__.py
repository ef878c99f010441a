"""The paper as a whole: its claims, verdicts on them, and the command that reproduces them."""
