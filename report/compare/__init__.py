"""Two saved reports into what changed, and limits on it."""
