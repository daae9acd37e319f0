"""Attention times on a made-up chip: 100 TFLOP/s, 1 TB/s, 100 multiprocessors at 1 GHz; each number derived by hand."""

from dataclasses import replace

import numpy as np
import pytest

from slipstick.backends.kernels.attention.additive import AdditiveConstants, additive_times, flash1_bytes
from slipstick.backends.kernels.attention.decode import DecodeConstants, decode_times
from slipstick.backends.kernels.attention.flash import FlashConstants, flash_times
from slipstick.backends.kernels.attention.forms import attention_times
from slipstick.backends.kernels.attention.sizes import AttentionSizes
from slipstick.backends.kernels.attention.unfused import UnfusedConstants, unfused_times
from slipstick.backends.kernels.terms import KernelTimes
from slipstick.backends.machine.chip import Chip, Peaks

PEAKS = Peaks(bf16=100e12, fp16=100e12, tf32=None, fp32=10e12, fp8=200e12, int8=None)
CHIP = Chip("toy", PEAKS, 8e12, 1e9, 64 * 2**30, 1e12, 500.0, num_sms=100, l2_bytes=2**25)
FLASH = FlashConstants(
    overhead_s=5e-6, tensor=0.5, exponent=0.8, start=0.0, edge=100.0, row_clocks=50.0, tail=0.5, passes=2.0, reload=0.0,
    backward=0.9, backward_exponent=2.0, backward_start=150.0,
)  # fmt: skip
DECODE = DecodeConstants(
    overhead_s=10e-6, memory=0.8, tensor=0.5, group_limit=8.0, group_rate=40.0, head_rate=20.0, block_clocks=1000.0,
    ramp=0.5, split=0.5, split_keys=256.0, row_clocks=200.0, min_rows=16.0, warm=0.0, page=1.0,
)  # fmt: skip


def terms(times: KernelTimes) -> dict[str, float]:
    return {name: float(value) * 1e6 for name, value in times.terms.items()}


def test_fused_forward() -> None:
    # 4 x 8 heads of 1024 causal rows: 32 * 1024 * (512.5 + 100 at the edge) pairs of 4 * 128 FLOPs, at 50 TFLOP/s.
    found = flash_times(AttentionSizes.of(4, 8, 2, 1024, 1024), CHIP, FLASH)
    pairs, rows = 32 * 1024 * 612.5, 32 * 1024
    tensor, softmax, by_row = pairs * 512 / 50e6, pairs * 0.8 / 1.6e6, rows * 50 / 1e5
    waves = (tensor + softmax + by_row) * 0.5 * 100 / 256
    # Queries twice, keys and values of a quarter of the heads twice, outputs once, two bytes an element.
    memory = rows * 128 * 2 * (2 + 2 * 2 / 4 + 1) / 1e6
    wanted = {"tensor": tensor, "softmax": softmax, "rows": by_row, "waves": waves, "memory": memory, "overhead": 5.0}
    assert terms(found) == pytest.approx(wanted)
    hidden = (sum((tensor, softmax, by_row, waves)) ** 1.5 + memory**1.5) ** (2 / 3)
    assert float(found.time_s) * 1e6 == pytest.approx(hidden + 5.0)


def test_fused_backward_has_five_products() -> None:
    # Scores anew, dP, dV, dQ, dK: 10 d FLOPs a pair at 0.9 of the forward share, 150 keys a row beside.
    sizes = AttentionSizes.of(1, 8, 8, 1024, 1024, causal=False, backward=True)
    pairs = 8 * 1024 * (1024 + 150)
    assert terms(flash_times(sizes, CHIP, FLASH))["tensor"] == pytest.approx(pairs * 1280 / 45e6)


def test_rows_fill_whole_tiles() -> None:
    # 130 queries of a head take two tiles of 128 rows: products, exponentials and fixed work are those of 256 rows,
    # over 130 keys that each sees and 20 keys of fixed work; traffic is that of the 130.
    found = flash_times(AttentionSizes.of(1, 4, 4, 130, 130, causal=False), CHIP, replace(FLASH, start=20.0))
    rows, pairs = 4 * 256, 4 * 256 * (130 + 20)
    tensor, softmax, by_row = pairs * 512 / 50e6, pairs * 0.8 / 1.6e6, rows * 50 / 1e5
    waves = (tensor + softmax + by_row) * 0.5 * 100 / (4 * 2)
    memory = 4 * 130 * 128 * 2 * (2 + 2 * 2 + 1) / 1e6
    wanted = {"tensor": tensor, "softmax": softmax, "rows": by_row, "waves": waves, "memory": memory, "overhead": 5.0}
    assert terms(found) == pytest.approx(wanted)
    # 256 queries fill two tiles by themselves.
    full = flash_times(AttentionSizes.of(1, 4, 4, 256, 256, causal=False), CHIP, FLASH)
    assert terms(full)["rows"] == pytest.approx(4 * 256 * 50 / 1e5)


def test_a_window_cuts_blocks_on_two_sides() -> None:
    # Of 1024 causal rows, 256 see 1 to 256 keys and 768 see 256; 100 keys a row on the diagonal and at the far end.
    found = flash_times(AttentionSizes.of(1, 8, 8, 1024, 1024, window=256), CHIP, FLASH)
    pairs = 8 * (256 * 257 / 2 + 768 * 256 + 2 * 100 * 1024)
    assert terms(found)["tensor"] == pytest.approx(pairs * 512 / 50e6)
    # 900 of 1024 keys: what the two edges would add is more than the window saves, so that it saves nothing.
    wide = flash_times(AttentionSizes.of(1, 8, 8, 1024, 1024, window=900), CHIP, FLASH)
    assert terms(wide)["tensor"] == pytest.approx(8 * 1024 * (512.5 + 100) * 512 / 50e6)
    # Without a causal mask a row sees 256 keys on each side and its own, but for the first and last 256 rows, of which
    # row i lacks 256 - i keys; the window cuts the far ends, 100 keys a row.
    both = flash_times(AttentionSizes.of(1, 8, 8, 1024, 1024, window=256, causal=False), CHIP, FLASH)
    assert terms(both)["tensor"] == pytest.approx(8 * (1024 * (513 + 100) - 2 * 256 * 257 / 2) * 512 / 50e6)


def test_a_mask_never_adds_more_than_it_saves() -> None:
    # 128 causal rows of 128 keys: 64.5 keys a row and 100 at the edge are more than the 128 that there are.
    small = flash_times(AttentionSizes.of(1, 8, 8, 128, 128), CHIP, FLASH)
    assert terms(small)["tensor"] == pytest.approx(8 * 128 * 128 * 512 / 50e6)


def test_fused_backward_has_its_own_exponentials_and_moves_twice_as_much() -> None:
    sizes = AttentionSizes.of(1, 8, 8, 1024, 1024, causal=False, backward=True)
    found = terms(flash_times(sizes, CHIP, FLASH))
    assert found["softmax"] == pytest.approx(8 * 1024 * (1024 + 150) * 2.0 / 1.6e6)
    # Queries, keys and values twice, outputs once; all of it a second time for the gradients.
    assert found["memory"] == pytest.approx(2 * 8 * 1024 * 256 * (2 * 3 + 1) / 1e6)


def test_scores_that_are_bent_take_a_special_function_more() -> None:
    plain, bent = (flash_times(AttentionSizes.of(1, 8, 8, 512, 512, softcap=s), CHIP, FLASH) for s in (False, True))
    assert terms(bent)["softmax"] == pytest.approx(2 * terms(plain)["softmax"])


@pytest.mark.parametrize("kernel", ["flash", "decode", "unfused", "additive"])
def test_what_moves_beside_the_operands_takes_its_bytes(kernel: str) -> None:
    def memory_us(extra_bytes: float) -> float:
        sizes = AttentionSizes.of(1, 8, 8, 1, 1024, extra_bytes=extra_bytes)
        if kernel == "flash":
            return terms(flash_times(sizes, CHIP, FLASH))["memory"]
        if kernel == "decode":
            return terms(decode_times(sizes, CHIP, DECODE))["memory"] * 0.8
        if kernel == "unfused":
            return (
                terms(unfused_times(sizes, CHIP, UnfusedConstants(20e-6, 0.5, 0.8, 5.0, 4.0, 9.0, 3.0)))["memory"] * 0.8
            )
        return terms(additive_times(sizes, CHIP, AdditiveConstants(5e-6, 0.5, 0.8, 0.5, 10.0, 98304.0)))["load"] * 0.8

    # 8 MB at 1 TB/s are 8 us.
    assert memory_us(8e6) - memory_us(0.0) == pytest.approx(8.0)


def test_latent_widths_have_their_own_flops() -> None:
    sizes = AttentionSizes.of(1, 1, 1, 128, 128, 192, 128)
    assert float(sizes.flops_a_pair) == 2 * (192 + 128)
    assert float(AttentionSizes.of(1, 1, 1, 128, 128, 192, 128, backward=True).flops_a_pair) == 2 * (3 * 192 + 2 * 128)


def test_a_chunk_of_a_prompt_reads_older_keys_once() -> None:
    # 128 new of 1024 keys, one head: 128 queries and fresh keys and values twice, outputs once, 896 older keys once.
    found = flash_times(AttentionSizes.of(1, 1, 1, 128, 1024), CHIP, FLASH)
    assert terms(found)["memory"] == pytest.approx((128 * 256 * (2 + 2 * 2 + 1) + 896 * 512) / 1e6)


def test_a_window_leaves_keys_unread() -> None:
    chunk = AttentionSizes.of(1, 1, 1, 128, 1024, window=100)
    assert float(chunk.keys_seen) == 227
    # Queries are the last 128 positions: none has a key beyond, so that they see 100 older keys and their own.
    assert float(AttentionSizes.of(1, 1, 1, 128, 1024, window=100, causal=False).keys_seen) == 228
    assert float(AttentionSizes.of(1, 1, 1, 1, 1024, window=100).cache_bytes) == 100 * 512


def test_flash_1_reads_queries_and_outputs_for_each_block() -> None:
    sizes = AttentionSizes.of(1, 1, 1, 1024, 1024, causal=False)
    first = FlashConstants(5e-6, 0.5, 0.8, 0.0, 0.0, 0.0, 0.5, 1.0, 1.0, 0.9, 2.0, 0.0)
    # Four operands once; for each of eight blocks of 128 keys a read of Q, a read and a write of O, 16 bytes a row.
    wanted = 1024 * (4 * 256 + 8 * (3 * 256 + 16)) / 1e6
    assert terms(flash_times(sizes, CHIP, first))["memory"] == pytest.approx(wanted)


def test_heads_that_share_keys_decode_in_one_block() -> None:
    # 64 sequences x 2 heads of keys on 100 multiprocessors: two rounds and half of one, 1000 keys of 512 bytes each.
    found = decode_times(AttentionSizes.of(64, 16, 2, 1, 1000), CHIP, DECODE)
    rows = 64 * 16
    memory = (128 * 1000 * 512 + 2 * rows * 256) / 0.8e6
    waves = 2.5 * (512000 / 40 + 1000) / 1e3
    # Eight rows of queries fill half of the sixteen that tensor units take.
    tensor = 2 * rows * 1000 * 512 / 50e6
    assert terms(found) == pytest.approx(
        {"tensor": tensor, "softmax": 0.0, "rows": rows * 200 / 1e5, "waves": waves, "memory": memory, "overhead": 10.0}
    )
    hidden = (memory**3 + waves**3 + tensor**3) ** (1 / 3)
    assert float(found.time_s) * 1e6 == pytest.approx(10.0 + rows * 200 / 1e5 + hidden)


def test_more_heads_than_the_limit_decode_one_by_one() -> None:
    # Nine heads a key: 90 blocks on 100 multiprocessors, no part smaller than the whole at a fill of a half; the fixed
    # work of blocks side by side is that of one.
    found = decode_times(AttentionSizes.of(10, 9, 1, 1, 1000), CHIP, DECODE)
    assert terms(found)["waves"] == pytest.approx((1.5 * 512000 / 20 + 1000) / 1e3)


def test_few_blocks_cut_a_sequence() -> None:
    # One head on 100 multiprocessors: 1/50 of a round at a fill of a half, but no part below 256 of 6400 keys.
    found = decode_times(AttentionSizes.of(1, 1, 1, 1, 6400), CHIP, DECODE)
    assert terms(found)["waves"] == pytest.approx((256 / 6400 * 6400 * 512 / 20 + 1000) / 1e3)


def test_several_queries_a_sequence_read_its_keys_each_and_fill_more_rows() -> None:
    # No shared keys: each of four queries reads the 512,000 bytes of its sequence; tensor units take 16 rows at least.
    found = decode_times(AttentionSizes.of(200, 1, 1, 4, 1000, causal=False), CHIP, DECODE)
    assert terms(found)["waves"] == pytest.approx(2.5 * (4 * 512000 / 20 + 1000) / 1e3)
    assert terms(found)["tensor"] == pytest.approx(200 * 16 * 1000 * 512 / 50e6)
    assert terms(found)["rows"] == pytest.approx(200 * 4 * 200 / 1e5)


def test_a_cache_is_read_in_whole_pages() -> None:
    paged = DecodeConstants(10e-6, 0.8, 0.5, 8.0, 40.0, 20.0, 1000.0, 0.5, 0.5, 256.0, 200.0, 16.0, 0.0, 64.0)
    by_page = decode_times(AttentionSizes.of(8, 8, 8, 1, 1000), CHIP, paged)
    whole = decode_times(AttentionSizes.of(8, 8, 8, 1, 1024), CHIP, DECODE)
    assert by_page.time_s == pytest.approx(whole.time_s)


def test_latents_are_keys_and_values_at_once() -> None:
    sizes = AttentionSizes.of(2, 16, 1, 1, 100, 576, 512, latent=True)
    assert float(sizes.cache_bytes) == 2 * 100 * 576 * 2


def test_what_a_benchmark_keeps_in_l2_is_not_read() -> None:
    warm = DecodeConstants(10e-6, 0.8, 0.5, 8.0, 40.0, 20.0, 1000.0, 0.5, 0.5, 256.0, 200.0, 16.0, 1.0, 1.0)
    small = AttentionSizes.of(8, 8, 8, 1, 1000)
    assert terms(decode_times(small, CHIP, warm))["memory"] == 0.0
    large = AttentionSizes.of(80, 8, 8, 1, 1000)
    saved = terms(decode_times(large, CHIP, DECODE))["memory"] - terms(decode_times(large, CHIP, warm))["memory"]
    assert saved == pytest.approx(2**25 / 0.8e6)


def test_unfused_attention_passes_over_its_scores() -> None:
    k = UnfusedConstants(20e-6, 0.5, 0.8, 5.0, 4.0, 9.0, 3.0)
    scores, operands = 8 * 1024 * 1024, 8 * 1024 * 128 * 2 * 4
    forward = unfused_times(AttentionSizes.of(1, 8, 8, 1024, 1024), CHIP, k)
    # Masked scores are computed all the same; 5 + 4 passes of two bytes.
    wanted = {"tensor": scores * 512 / 50e6, "scores": scores * 18 / 0.8e6, "memory": 3 * operands / 0.8e6}
    assert terms(forward) == pytest.approx({**wanted, "overhead": 20.0})
    assert float(forward.time_s) * 1e6 == pytest.approx(sum(wanted.values()) + 20.0)
    # Backward: four products, scores were kept.
    backward = unfused_times(AttentionSizes.of(1, 8, 8, 1024, 1024, backward=True), CHIP, k)
    assert terms(backward)["tensor"] == pytest.approx(scores * 1024 / 50e6)
    assert terms(backward)["scores"] == pytest.approx(scores * 18 / 0.8e6)
    assert terms(backward)["memory"] == pytest.approx(2 * 3 * operands / 0.8e6)
    # Without any mask there are five passes; a window is a mask too.
    open_, windowed = (AttentionSizes.of(1, 8, 8, 1024, 1024, causal=False, window=w) for w in (0, 256))
    assert terms(unfused_times(open_, CHIP, k))["scores"] == pytest.approx(scores * 10 / 0.8e6)
    assert terms(unfused_times(windowed, CHIP, k))["scores"] == pytest.approx(scores * 18 / 0.8e6)


def test_traffic_of_flash_1_is_that_of_its_paper() -> None:
    # N 2048, d 128, 98304 elements on chip: 11 blocks of 192 keys; e (2 N d) + 11 (e 3 N d + 16 N), Dao et al. 2022.
    loads, stores = flash1_bytes(AttentionSizes.of(1, 1, 1, 2048, 2048, causal=False), 98304)
    assert float(loads + stores) == 2 * (2 * 2048 * 128) + 11 * (2 * 3 * 2048 * 128 + 16 * 2048) == 18710528
    sizes = AttentionSizes.of(1, 1, 1, 2048, 2048, causal=False)
    assert float(sizes.pairs() * sizes.flops_a_pair) == 2147483648
    back = AttentionSizes.of(1, 1, 1, 2048, 2048, causal=False, backward=True)
    assert float(back.pairs() * back.flops_a_pair) == 5368709120
    # Backward: e (4 N d) + 11 (e 5 N d + 16 N).
    moved = sum(flash1_bytes(back, 98304))
    assert float(moved) == 2 * (4 * 2048 * 128) + 11 * (2 * 5 * 2048 * 128 + 16 * 2048)


def test_the_additive_model_adds() -> None:
    k = AdditiveConstants(5e-6, 0.5, 0.8, 0.5, 10.0, 98304.0)
    found = additive_times(AttentionSizes.of(1, 8, 8, 2048, 2048, causal=False), CHIP, k)
    pairs = 8 * 2048 * 2048
    # 192 keys and 128 rows a block; on-chip bytes a pair: a score written and read, 256 elements over rows and keys.
    sram = pairs * 2 * (2 + 256 * (1 / 128 + 1 / 192)) / 10e6
    assert terms(found)["tensor"] == pytest.approx(max(pairs * 512 / 50e6, sram))
    assert terms(found)["softmax"] == pytest.approx(pairs * 7 / 4e6)
    assert terms(found)["load"] + terms(found)["store"] == pytest.approx(8 * 18710528 / 0.8e6)
    assert float(found.time_s) * 1e6 == pytest.approx(sum(terms(found).values()))
    back = additive_times(AttentionSizes.of(1, 8, 8, 2048, 2048, causal=False, backward=True), CHIP, k)
    assert terms(back)["softmax"] == pytest.approx(pairs * 8 / 4e6)
    # On-chip bandwidth binds where it is no more than that of the memory.
    slow = additive_times(AttentionSizes.of(1, 8, 8, 2048, 2048, causal=False), CHIP, replace(k, sram=1.0))
    assert terms(slow)["tensor"] == pytest.approx(10 * sram)


def test_one_query_decodes_and_many_do_not() -> None:
    one, many = AttentionSizes.of(4, 8, 2, 1, 1000), AttentionSizes.of(4, 8, 2, 65, 1000)
    assert attention_times(one, CHIP, FLASH, DECODE).time_s == decode_times(one, CHIP, DECODE).time_s
    assert attention_times(many, CHIP, FLASH, DECODE).time_s == flash_times(many, CHIP, FLASH).time_s
    few = AttentionSizes.of(4, 8, 2, 4, 1000)
    both = decode_times(few, CHIP, DECODE).time_s, flash_times(few, CHIP, FLASH).time_s
    assert attention_times(few, CHIP, FLASH, DECODE).time_s == min(both)
    # Blocks that read a byte in a clock leave a few queries to the fused form, and one query to the decode form.
    slow = replace(DECODE, head_rate=1.0, group_rate=1.0)
    assert flash_times(few, CHIP, FLASH).time_s < decode_times(few, CHIP, slow).time_s
    assert attention_times(few, CHIP, FLASH, slow).time_s == flash_times(few, CHIP, FLASH).time_s
    assert attention_times(one, CHIP, FLASH, slow).time_s == decode_times(one, CHIP, slow).time_s
    assert attention_times(one, CHIP, FLASH).time_s == flash_times(one, CHIP, FLASH).time_s


def test_terms_are_arrays_of_the_shape_of_the_times() -> None:
    sizes = AttentionSizes.of(4, 8, 2, 1024, 1024)
    found = flash_times(sizes, CHIP, FLASH)
    assert all(np.shape(term) == np.shape(found.time_s) for term in found.terms.values())
    assert found.bound() == "tensor"
