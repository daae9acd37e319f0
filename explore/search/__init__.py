"""Search of whole spaces of plans: cut into blocks, worked on anywhere, kept in a ledger, answered with the best."""
