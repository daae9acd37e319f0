"""One file a schedule: each module here has one `SCHEDULE`, and all that is said of it."""
