"""Change the allocations of consumers, one consumer at a time. Imports no other room of the agent."""
