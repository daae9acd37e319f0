"""A module run on fake tensors to a torch.fx graph: every operator of forward, loss and backward."""
