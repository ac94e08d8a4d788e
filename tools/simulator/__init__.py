"""What a fleet asks of placement and Keystone over a day: simulated from measured costs, for up to 100,000 hosts."""
