"""Searches whose processes and machines are killed, ledgers that are damaged, a server under load; and their page."""
