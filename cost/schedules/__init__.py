"""Orders in which pipeline stages run their micro-batches, how long they take, and what they wait for."""
