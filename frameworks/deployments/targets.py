"""Pools of servers as Kubernetes manifests, as a graph of Dynamo, and as values of llm-d.

Names as in Kubernetes' apps/v1 and LeaderWorkerSet's v1; ai-dynamo/dynamo at commit 04521f473b68, examples/backends
and its DynamoGraphDeployment v1alpha1; llm-d-incubation/llm-d-modelservice at commit 024c0f2d0237, values.yaml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from ...ir.errors import UsageError
from ...ir.text.json_text import json_text
from ..export import Export, nested, yaml_text
from .pools import ServerPool

_IMAGES: Mapping[str, str] = MappingProxyType(
    {
        "vllm": "vllm/vllm-openai:latest",
        "sglang": "lmsysorg/sglang:latest",
        "tensorrt-llm": "nvcr.io/nvidia/tensorrt-llm/release:1.0.0",
    }
)
_GPU, _PORT = "nvidia.com/gpu", {"vllm": 8000, "sglang": 30000, "tensorrt-llm": 8000}
# Modules of Dynamo, their images, and what workers of a role are told.
_MODULES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "vllm": ("dynamo.vllm", "vllm-runtime"),
        "sglang": ("dynamo.sglang", "sglang-runtime"),
        "tensorrt-llm": ("dynamo.trtllm", "tensorrtllm-runtime"),
    }
)
_DYNAMO = "nvcr.io/nvidia/ai-dynamo/{}:1.3.1"


# How the nodes of a LeaderWorkerSet join in a server.
_JOINS: Mapping[str, str] = MappingProxyType(
    {
        "sglang": "--nnodes $LWS_GROUP_SIZE --node-rank $LWS_WORKER_INDEX --dist-init-addr $LWS_LEADER_ADDRESS:5000",
        "vllm": "--nnodes $LWS_GROUP_SIZE --node-rank $LWS_WORKER_INDEX --master-addr $LWS_LEADER_ADDRESS",
    }
)


def kubernetes(pools: Sequence[ServerPool]) -> str:
    """Return a workload and a service a pool; a server of several nodes is a LeaderWorkerSet."""
    texts = []
    for pool in pools:
        port = {"port": 80, "targetPort": _PORT[pool.engine.name]}
        spec = {"selector": {"app": pool.name}, "ports": [port]}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": pool.name}, "spec": spec}
        texts += [yaml_text(_workload(pool)), yaml_text(service)]
    return "---\n".join(texts)


def _workload(pool: ServerPool) -> dict[str, object]:
    each = min(pool.num_gpus, pool.subject.node_size or pool.num_gpus)
    nodes, labels = -(-pool.num_gpus // each), {"app": pool.name}
    joins = _JOINS.get(pool.engine.name, "") if nodes > 1 else ""
    script = f"{pool.script.rstrip()} \\\n  {joins}\n" if joins else pool.script
    container = {
        "name": pool.engine.name,
        "image": _IMAGES[pool.engine.name],
        "command": ["/bin/sh", "-c"],
        "args": [script],
        "ports": [{"containerPort": _PORT[pool.engine.name]}],
        "resources": {"limits": {_GPU: each}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108  (shared memory of ranks, no file)
    }
    volumes = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [container], "volumes": volumes}}
    meta = {"name": pool.name, "labels": labels}
    if nodes > 1:
        spec: dict[str, object] = {
            "replicas": pool.replicas,
            "leaderWorkerTemplate": {"size": nodes, "workerTemplate": pod},
        }
        return {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": meta, "spec": spec}
    spec = {"replicas": pool.replicas, "selector": {"matchLabels": labels}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def dynamo(pools: Sequence[ServerPool]) -> str:
    """Return a DynamoGraphDeployment: a frontend and a worker a pool."""
    _, image = _MODULES[pools[0].engine.name]
    front = {"componentType": "frontend", "replicas": 1, "extraPodSpec": _main(_DYNAMO.format(image))}
    services = {"Frontend": front, **{f"{pool.role}-worker": _worker(pool) for pool in pools}}
    return yaml_text(
        {
            "apiVersion": "nvidia.com/v1alpha1",
            "kind": "DynamoGraphDeployment",
            "metadata": {"name": pools[-1].name},
            "spec": {"services": services},
        }
    )


def _main(image: str, **more: object) -> dict[str, object]:
    return {"mainContainer": {"image": image, **more}}


def _worker(pool: ServerPool) -> dict[str, object]:
    module, image = _MODULES[pool.engine.name]
    if pool.engine.name == "tensorrt-llm":
        options = json_text(nested((*pool.flags, *pool.role_flags)))
        words = ["--model-path", pool.model, "--override-engine-args", options]
        words += [] if pool.role == "serve" else ["--disaggregation-mode", pool.role]
    else:
        words = ["--model" if pool.engine.name == "vllm" else "--model-path", pool.model]
        words += pool.arguments(pool.flags)
        # Its workers of vLLM join by NIXL themselves.
        own = [f"--is-{pool.role}-worker"] if pool.engine.name == "vllm" else pool.arguments(pool.role_flags)
        words += [] if pool.role == "serve" else own
    each = min(pool.num_gpus, pool.subject.node_size or pool.num_gpus)
    nodes = -(-pool.num_gpus // each)
    return {
        "componentType": "worker",
        **({} if pool.role == "serve" else {"subComponentType": pool.role}),
        "replicas": pool.replicas,
        **({"multinode": {"nodeCount": nodes}} if nodes > 1 else {}),
        "resources": {"limits": {"gpu": str(each)}},
        "extraPodSpec": _main(_DYNAMO.format(image), command=["python3", "-m", module], args=words),
    }


def llm_d(pools: Sequence[ServerPool]) -> str:
    """Return values of llm-d's modelservice; its decode pods serve alone where there is one pool."""
    if any(pool.engine.name != "vllm" for pool in pools):
        raise UsageError(f"llm-d runs vLLM, and the plan is of {pools[0].engine.title}: give --engine vllm")
    by_role = {"decode" if pool.role == "serve" else pool.role: pool for pool in pools}
    values: dict[str, object] = {
        "multinode": any(pool.num_gpus > (pool.subject.node_size or pool.num_gpus) for pool in pools),
        "modelArtifacts": {"name": pools[0].model, "uri": f"hf://{pools[0].model}"},
        "routing": {"servicePort": 8000},
    }
    for role in ("decode", "prefill"):
        pool = by_role.get(role)
        values[role] = {"create": False, "replicas": 0} if pool is None else _pods(pool)
    return yaml_text(values)


def _pods(pool: ServerPool) -> dict[str, object]:
    """Return pods of a role: the chart writes tensor and data parallelism, and asks for their GPUs, by itself."""
    degrees = {"--tensor-parallel-size": "tensor", "--data-parallel-size": "data"}
    given = {degrees[name]: value for name, value in pool.flags if name in degrees}
    rest = [(name, value) for name, value in (*pool.flags, *pool.role_flags) if name not in degrees]
    container = {
        "name": "vllm",
        "image": _IMAGES["vllm"],
        "modelCommand": "vllmServe",
        "args": pool.arguments(rest),
        "mountModelVolume": True,
    }
    return {"create": True, "replicas": pool.replicas, "parallelism": given, "containers": [container]}


TARGETS: Mapping[str, tuple[str, str, Callable[[Sequence[ServerPool]], str]]] = MappingProxyType(
    {
        "kubernetes": ("Kubernetes", "apps/v1 and leaderworkerset.x-k8s.io/v1", kubernetes),
        "dynamo": ("Dynamo", "ai-dynamo/dynamo 04521f473b68", dynamo),
        "llm-d": ("llm-d", "llm-d-modelservice 024c0f2d0237", llm_d),
    }
)


def write_deployment(target: str, pools: Sequence[ServerPool]) -> Export:
    """Return pools of servers as the files of one of TARGETS."""
    title, version, write = TARGETS[target]
    lost = tuple(dict.fromkeys(line for pool in pools for line in pool.lost))
    left = ["images: pin the release that was planned", "secrets and volumes of the weights"]
    node = pools[0].subject.node_size
    if node and any(pool.num_gpus > node for pool in pools) and pools[0].engine.name not in _JOINS:
        left.append("how the nodes of a server join: trtllm-llmapi-launch under MPI")
    if len(pools) > 1 and target == "kubernetes":
        left.append("what sends prompts to the first pool and caches to the second: a router, as of Dynamo or llm-d")
    benchmark = pools[-1].engine.measured(pools[-1].subject)
    return Export(title, f"{version}, {pools[0].engine.version}", write(pools), lost, tuple(left), True, benchmark)
