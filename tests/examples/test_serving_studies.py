"""What studies of simulated requests say, on their reduced grids."""

from .conftest import Study


def test_larger_stores_find_more_and_tiers_shorten_the_wait(study: Study) -> None:
    """A store of 3M tokens finds 41 % of what an endless one does, one of 50M nearly all (Mooncake, figure 9)."""
    rows = study("ex23_kv_tiers")
    stores = [float(row["found (%)"]) for row in rows if row["of"] == "store"]
    assert stores == sorted(stores)
    assert stores[-1] <= 100
    for row in rows:
        if row["published (%)"]:
            assert abs(float(row["found (%)"]) - float(row["published (%)"])) < 5
    servers = [row for row in rows if row["of"] == "server"]
    found, waits = ([float(row[name]) for row in servers] for name in ("found (%)", "TTFT (s)"))
    assert found[0] == 0
    assert found == sorted(found)
    # The last two find as much, and loads of either take little: queues decide between them.
    assert waits[0] > waits[1] > max(waits[2:])


def test_replicas_that_follow_the_load_take_about_as_many_gpus_as_dynamos_planner(study: Study) -> None:
    """4.71 GPUs on average by each of three gains (ai-dynamo/dynamo, tests/planner/README.md)."""
    rows = study("ex26_autoscale")
    gpus = [row for row in rows if row["what"] == "GPUs"]
    assert all(abs(float(row["error (%)"])) < 15 for row in gpus)
    # Its published gains say the same number of GPUs: 4 x gain / gain a GPU.
    assert [round(4 * gain / a_gpu, 1) for gain, a_gpu in ((1.52, 1.29), (4.11, 3.49), (8.25, 7.0))] == [4.7] * 3
    in_time = {row["fleet"]: float(row["in time (1/s)"]) for row in rows if row["in time (1/s)"]}
    assert in_time["2 + 2"] > in_time["1 + 1, tp2"] > in_time["3 + 1"]
