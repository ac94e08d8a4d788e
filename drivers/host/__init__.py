"""Facts that Linux itself tells, the same for every driver; each probe takes its root."""
