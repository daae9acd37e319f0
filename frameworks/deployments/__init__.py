"""Servers as deployments: Kubernetes manifests, Dynamo graphs, values of llm-d."""
