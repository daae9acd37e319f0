"""What a plan says of experts: how rows travel to them, how popular they are, and where copies of them lie."""
