"""What a user asked, as records, and the functions that answer it; the command line and Python alike come here."""
