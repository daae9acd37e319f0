"""Tables of served requests: time to the first token, time per token, whole requests, throughput."""
