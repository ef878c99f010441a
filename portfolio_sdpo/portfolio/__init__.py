"""The product: gross returns, accounting, policy network, learners, agent, shield and store."""
