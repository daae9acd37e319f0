"""Post-training by reinforcement: rollouts on an engine, passes over what they made, and training, as one step."""
