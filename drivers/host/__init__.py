"""Facts from Linux itself, the same for every driver; each probe takes the root of the files that it reads."""
