"""Model, plan and system to an estimate, a training run, its money, or a server's answer."""
