"""Requests on an engine: phases, batching, queues, pools; all on times of steps that are known already."""
