"""What a server makes of a load, on a screen and as JSON."""
