"""Change what consumers have allocated, one consumer at a time. Knows nothing else of the agent."""
