"""Safety Gym: questions (B) and (C) of the paper."""
