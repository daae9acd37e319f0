"""Collectives of a measured machine: what messages between two ranks say of the link."""

from slipstick.validation.measure.collectives import link_of
from slipstick.validation.measure.kernels.probe import MeasuredProbe, Probe


def _message(size: int, time_s: float) -> MeasuredProbe:
    return MeasuredProbe(Probe("collectives", f"send_recv_2_{size}", {"size_bytes": size}, lambda: print), time_s, 0.0)


def test_the_link_is_the_fastest_large_and_the_quickest_small_message() -> None:
    link = link_of([_message(1000, 1e-5), _message(10**9, 0.5)])
    assert link is not None
    assert link.bytes_per_s == 2e9
    assert link.latency_s == 1e-5


def test_without_messages_there_is_no_link() -> None:
    assert link_of([]) is None


def test_other_tables_say_nothing_of_it() -> None:
    assert link_of([MeasuredProbe(Probe("gemm", "fp32", {}, lambda: print), 1.0, 0.0)]) is None
