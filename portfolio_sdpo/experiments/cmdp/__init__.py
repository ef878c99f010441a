"""Random CMDPs: question (A) of the paper and what lies past it."""
