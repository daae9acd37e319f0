"""Manifests of Kubernetes and Compose, and experiments of Primus."""

from slipstick.frameworks.manifests import launched
from slipstick.frameworks.reading import read_launch

SERVER = """
apiVersion: apps/v1
kind: Deployment
spec:
  replicas: 3
  template:
    spec:
      initContainers: [{name: wait, command: [echo]}]
      containers:
      - name: vllm
        image: vllm/vllm-openai:v0.9
        args: ["--model", "$(MODEL)", "--tensor-parallel-size", "2"]
        env: [{name: MODEL, value: org/m}]
        resources: {limits: {nvidia.com/gpu: 2}}
---
apiVersion: v1
kind: Service
"""
JOB = """
kind: JobSet
spec:
  replicatedJobs:
  - replicas: 1
    template:
      spec:
        parallelism: 16
        completions: 16
        template:
          spec:
            containers:
            - command: [bash, -c]
              args: ["export A=1 && python3 -m MaxText.train b.yml model_name=llama3.1-8b ici_fsdp_parallelism=64"]
              resources: {limits: {google.com/tpu: 4}}
"""
PRIMUS = """
exp_name: x
modules:
  pre_trainer:
    framework: megatron
    model: llama3.1_8B.yaml
    overrides: {tensor_model_parallel_size: "${PRIMUS_TP:2}", seq_length: 128, lr: 1.0e-5, save: null}
"""


def test_a_container_of_a_server_is_its_command() -> None:
    launch = read_launch(SERVER, "deployment.yaml")
    assert (launch.framework, launch.words["model"], launch.words["tp"]) == ("vllm", "org/m", 2)


def test_devices_of_a_job_are_those_of_its_pods() -> None:
    launch = read_launch(JOB, "job.yaml")
    assert (launch.framework, launch.words["gpus"], launch.words["zero"]) == ("maxtext", 64, 3)


def test_a_service_of_compose_is_its_command() -> None:
    text = "services:\n  a:\n    command: vllm serve org/m --tensor-parallel-size 4\n    environment: [A=1]\n"
    assert read_launch(text, "compose.yml").words["tp"] == 4


def test_an_experiment_of_primus_is_what_it_overrides() -> None:
    launch = read_launch(PRIMUS, "primus.yaml")
    assert (launch.framework, launch.words["model"], launch.words["tp"]) == ("megatron", "llama-3.1-8b", 2)
    assert read_launch(PRIMUS, "primus.yaml", environment={"PRIMUS_TP": "4"}).words["tp"] == 4
    assert launch.ignored == ("lr",)


def test_a_file_without_containers_is_none() -> None:
    deep: object = {"containers": []}
    for _ in range(200):
        deep = {"spec": deep}
    assert launched([{"a": 1}, deep, [], "x"]) is None
