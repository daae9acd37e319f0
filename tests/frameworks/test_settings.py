"""What settings.yaml says of settings that no word of a plan comes from: no pattern may hide what matters."""

import re
from pathlib import Path

import pytest

from slipstick import frameworks
from slipstick.frameworks.launch import plain, settings_like
from slipstick.frameworks.reading import read_launch
from slipstick.frameworks.registry import FRAMEWORKS, TRAINERS

# Names that change the time of a step or its memory, whatever else a pattern is for.
MATTERS = {
    "megatron": """
        optimizer muon_momentum fp32_residual_connection deterministic_mode attention_dropout hidden_dropout
        distribute_saved_activations moe_layer_recompute moe_expert_capacity_factor mtp_use_repeated_layer spec
        empty_unused_memory_level transformer_impl num_experts window_size nccl_ub
        keep_fp8_weight_transpose_cache decoder_first_pipeline_num_layers padded_vocab_size vocab_size
        data_parallel_sharding_strategy use_cpu_offload rampup_batch_size
        disable_bf16_reduced_precision_matmul moe_pad_expert_input_to_capacity moe_router_topk
        high_priority_stream_groups
    """,
    "torchtitan": """
        optimizer.name optimizer.implementation_kind model.converters model.flavor training.compile
        training.mixed_precision_param parallelism.fsdp_prefetch activation_checkpoint.mode
        float8.recipe_name training.global_batch_size experimental.enable_async_tensor_parallel
        training.enable_cpu_offload
    """,
    "deepspeed": """
        optimizer.type zero_optimization.stage zero_optimization.zero_quantized_weights
        zero_optimization.overlap_comm zero_optimization.zero_hpz_partition_size
        zero_optimization.mics_shard_size bf16.enabled compile zero_optimization.zero_quantized_gradients
        activation_checkpointing.cpu_checkpointing fp16.enabled communication_data_type
        sparse_attention.mode compression_training.weight_quantization
    """,
    "transformers": """
        optim optimizer adapter finetuning_type lora_target load_in_4bit torch_compile fsdp deepspeed
        gradient_checkpointing per_device_train_batch_size gradient_accumulation_steps liger_rope
        qat.weight_dtype bf16 fp8 sample_packing attn_implementation freeze_language_model
        activation_offloading sequence_parallel_degree context_parallel_size unfrozen_parameters
        enable_liger_kernel
    """,
    "nanotron": """
        parallelism.tp optimizer.zero_stage optimizer.accumulate_grad_in_fp32 model.dtype
        tokens.micro_batch_size model.model_config.sliding_window_size optimizer.optimizer_factory.name
    """,
    "maxtext": """
        remat_policy quantization ici_fsdp_parallelism per_device_batch_size opt_type weight_dtype
        max_target_length decoder_layer_input num_vocab_tiling capacity_factor attention logits_dot_in_fp32
    """,
    "servers": """
        hf_overrides config extra_llm_api_options max_beam_width speculative_config enable_lora max_loras
        quantization kv_cache_dtype cpu_offload_gb disable_custom_all_reduce kv_transfer_config
        max_model_len gpu_memory_utilization num_gpu_blocks_override enforce_eager enable_torch_compile
        disable_overlap_schedule num_continuous_decode_steps decode_context_parallel_size
        disaggregation_mode tensor_parallel_size
    """,
}


@pytest.mark.parametrize("framework", MATTERS)
def test_no_pattern_hides_a_setting_that_matters(framework: str) -> None:
    irrelevant = settings_like(framework).irrelevant
    assert not [name for name in MATTERS[framework].split() if irrelevant.fullmatch(name)]


@pytest.mark.parametrize(("module", "framework"), [("training/megatron", "megatron"), ("servers/vllm", "servers")])
def test_no_pattern_hides_a_flag_that_export_writes(module: str, framework: str) -> None:
    text = Path(str(frameworks.__file__)).parent.joinpath(f"{module}.py").read_text(encoding="utf-8")
    names = {plain(flag) for flag in re.findall(r'"(--[a-z0-9-]+)"', text)}
    assert len(names) > 8
    # Megatron-FSDP asks for a format of its checkpoints.
    hidden = {name for name in names if settings_like(framework).irrelevant.fullmatch(name)}
    assert hidden <= {"ckpt_format"}


def test_every_framework_has_its_settings() -> None:
    assert set(MATTERS) == {*TRAINERS, "servers"}
    for framework in MATTERS:
        assert settings_like(framework).usual
    assert {"vllm", "sglang", "tensorrt-llm", "lmdeploy"} == set(FRAMEWORKS) - set(TRAINERS)


def test_settings_of_a_framework_may_stand_among_those_of_another() -> None:
    assert settings_like("transformers").is_usual("zero_optimization.contiguous_gradients", True)


def test_an_unusual_value_is_left_out_and_a_usual_one_is_not() -> None:
    launch = read_launch("vllm serve m --max-beam-width 4 --moe-backend x --hf-overrides '{}' --seed 1")
    assert set(launch.left_out) == {"--max-beam-width", "--hf-overrides"}
    assert launch.usual == ("--moe-backend",)
    assert launch.ignored == ("--seed",)
