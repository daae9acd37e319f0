"""The timeline of one step: Chrome trace JSON, and the memory of a stage over the step."""
