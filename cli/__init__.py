"""What is typed at a shell into calls of the driver, one file a verb."""
