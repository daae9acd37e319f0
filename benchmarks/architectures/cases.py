"""The architectures, as people get them: a config of transformers, or a module of `modules`; at published sizes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import torch
from torch import Tensor, nn

from slipstick.frontend import leaves
from slipstick.frontend.huggingface.configs.models import config_of
from slipstick.frontend.loading import load_config
from slipstick.frontend.module import trace
from slipstick.ir.errors import UsageError
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.records import dataclass

from . import modules

IDS = torch.zeros(2, 128, dtype=torch.int64)


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model of an architecture.

    Attributes:
        name: of the architecture and the model that has the sizes.
        given: as what it is read.
        graph: the graph for a workload; UsageError where the module has none.
        gpus: of the machine that it is run on, H200.
        experts: degree of expert parallelism, or of distributed tables; 1 for none.
        precision: in which weights are served.
    """

    name: str
    given: str
    graph: Callable[[Workload], Graph]
    gpus: int = 8
    experts: int = 1
    precision: str = "none"


MAMBA2: Mapping[str, object] = {
    "model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50288, "num_heads": 80,
    "head_dim": 64, "state_size": 128, "expand": 2, "n_groups": 1, "conv_kernel": 4, "chunk_size": 256,
    "tie_word_embeddings": True,
}  # fmt: skip
QWEN3_NEXT: Mapping[str, object] = {
    "model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "vocab_size": 151936,
    "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 5120,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4, "num_experts": 512,
    "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    "decoder_sparse_step": 1, "tie_word_embeddings": False, "max_position_embeddings": 262144,
}  # fmt: skip
KIMI_LINEAR: Mapping[str, object] = {
    "model_type": "kimi_linear", "vocab_size": 163840, "hidden_size": 2304, "intermediate_size": 9216,
    "moe_intermediate_size": 1024, "num_hidden_layers": 27, "num_attention_heads": 32, "num_key_value_heads": 32,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "num_experts": 256,
    "num_experts_per_token": 8, "num_shared_experts": 1, "first_k_dense_replace": 1, "model_max_length": 1048576,
    "linear_attn_config": {
        "head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4, "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "kda_layers": [i for i in range(1, 27) if i % 4],
    },
}  # fmt: skip
DEEPSEEK_V32: Mapping[str, object] = {
    "model_type": "deepseek_v32", "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4,
    "first_k_dense_replace": 3, "max_position_embeddings": 163840, "index_n_heads": 64, "index_head_dim": 128,
    "index_topk": 2048, "tie_word_embeddings": False,
}  # fmt: skip


def of_config(name: str, config: Mapping[str, object]) -> Callable[[Workload], Graph]:
    """Read a config of transformers."""
    return cache(lambda workload: load_config(config_of(name, json.loads(json.dumps(config))), workload))


def of_module(
    build: Callable[[], nn.Module],
    inputs: Tensor | Mapping[str, Tensor] = IDS,
    dynamic: Mapping[str, Sequence[str | None]] | None = None,
) -> Callable[[Workload], Graph]:
    """Trace a module on the meta device; these have no caches, and so no decode steps."""

    def graph(workload: Workload) -> Graph:
        if workload is Workload.DECODE:
            raise UsageError("the module has no cache among its inputs")
        with torch.device("meta"):
            module = build().to(torch.bfloat16)
        return trace(module, inputs, dynamic, phase=workload)

    return cache(graph)


def llama(width: int, heads: int, kv_heads: int, ffn: int, core: modules.Core) -> nn.Module:
    """Return a layer of a Llama around a core of attention."""
    return modules.Block(width, ffn, modules.Attention(width, heads, kv_heads, core))


def goose(layers: int = 32, width: int = 2560) -> nn.Module:
    """RWKV-7 World 2.9B."""
    made = [modules.Goose(width, 64, (96, 96, 64, 320), i == 0) for i in range(layers)]
    return modules.Language(65536, width, made, norms=[nn.LayerNorm(width), nn.LayerNorm(width)])


def nsa(layers: int = 30) -> nn.Module:
    """The 27B of NSA without its experts: 64 heads of 192 on 4 of keys; 16 blocks of 64 keys chosen, 512 last ones."""
    sizes = (16, 16 * 64, 512)
    made = (modules.SparseAttention(2560, 64, 4, 192, sizes) for _ in range(layers))
    return modules.Language(129280, 2560, [modules.Block(2560, 6912, one) for one in made])


def moba(layers: int = 32) -> nn.Module:
    """Llama 3.1 8B whose queries read 3 blocks of 512 keys."""
    core = leaves.Attention(keys=3 * 512)
    return modules.Language(128256, 4096, [llama(4096, 32, 8, 14336, core) for _ in range(layers)])


def ouro(layers: int = 24, loops: int = 4) -> nn.Module:
    """Ouro 1.4B: the same layers run four times over."""
    made = [llama(2048, 16, 16, 5632, modules.attend(causal=True)) for _ in range(layers)]
    return modules.Language(49152, 2048, made, loops)


def layer_skip(layers: int = 32, exits: int = 8, stop: int = 0) -> nn.Module:
    """Llama 3.1 8B with a head behind every 8th layer; with `stop` the layers behind it are never run."""
    made = [llama(4096, 32, 8, 14336, modules.attend(causal=True)) for _ in range(layers)]
    return modules.Language(128256, 4096, made, 1, exits, stop)


def llada(layers: int = 32) -> nn.Module:
    """LLaDA 8B: a Llama that sees all tokens and guesses the masked ones."""
    made = [llama(4096, 32, 32, 12288, modules.attend(causal=False)) for _ in range(layers)]
    return modules.Language(126464, 4096, made)


def blt(layers: tuple[int, int, int] = (1, 25, 9), patch: int = 4) -> nn.Module:
    """A byte-level model of the sizes of BLT 4.5B with patches of four bytes; without its cross-attention."""
    light = partial(llama, 1024, 16, 16, 2816, modules.attend(causal=True))
    heavy = partial(llama, 2048, 16, 16, 5632, modules.attend(causal=True))
    return modules.Patched(light, heavy, (1024, 2048), layers, patch)


VIDEO_INPUTS = {
    "patches": torch.zeros(1, 256, 5120, dtype=torch.bfloat16),
    "words": torch.zeros(1, 512, 5120, dtype=torch.bfloat16),
    "time": torch.zeros(1, 256, dtype=torch.bfloat16),
}
VIDEO_DIMS = {"patches": ("batch", "seq"), "words": ("batch",), "time": ("batch",)}
TABLES = 26
RANKING_INPUTS = {
    "numbers": torch.zeros(8, 13, dtype=torch.bfloat16),
    "ids": torch.zeros(8, TABLES, 1, dtype=torch.int64),
}
RANKING_DIMS = {"numbers": ("batch",), "ids": ("batch",)}


def dlrm(rows: int = 8_000_000, width: int = 128) -> nn.Module:
    """A DLRM of the MLPs of MLPerf's, with 26 tables of eight million rows each."""
    return modules.Ranking(TABLES, rows, width, (13, 512, 256), (1024, 1024, 512, 256))


ARCHITECTURES = (
    Architecture("Mamba-2 2.7B", "config", of_config("mamba2-2.7b", MAMBA2)),
    Architecture("gated delta rule, Qwen3-Next 80B A3B", "config", of_config("qwen3-next", QWEN3_NEXT), 32, 8),
    Architecture("KDA, Kimi Linear 48B A3B", "config", of_config("kimi-linear", KIMI_LINEAR), 32, 8),
    Architecture("RWKV-7 2.9B", "module, recurrence a leaf", of_module(goose)),
    Architecture("NSA, as its 27B without experts", "module, attention a leaf", of_module(nsa)),
    Architecture("DSA, DeepSeek-V3.2", "config", of_config("deepseek-v3.2", DEEPSEEK_V32), 256, 16, "fp8-block"),
    Architecture("MoBA, Llama 3.1 8B", "module, attention a leaf", of_module(moba)),
    Architecture("looped, Ouro 1.4B", "module", of_module(ouro)),
    Architecture("early exit, LayerSkip on Llama 3.1 8B", "module", of_module(layer_skip)),
    Architecture("masked diffusion, LLaDA 8B", "module", of_module(llada)),
    Architecture("video, Wan 14B", "module",
                 of_module(partial(modules.Video, 5120, 13824, 40, 40), VIDEO_INPUTS, VIDEO_DIMS)),
    Architecture("bytes in patches, as BLT 4.5B", "module", of_module(blt)),
    Architecture("ranking, DLRM of 26.6B", "module", of_module(dlrm, RANKING_INPUTS, RANKING_DIMS), 8, 8),
)  # fmt: skip
