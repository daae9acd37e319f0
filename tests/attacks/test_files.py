"""Files made to run code, to read or write what was not named, or to fill memory: each is refused in words."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import resource
import time
import zipfile
from pathlib import Path

import onnx
import pytest

from slipstick.cli import run

ROOT = Path(__file__).resolve().parents[2]
GRAPH = ROOT / "tests" / "golden" / "tiny-llama.train.graph"
ON = ("--system", "dgx-h100", "--gpus", "8", "--seq", "256", "--gbs", "16")
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefghij", "bcdefghijk", strict=True)
)
TAGS = (
    "!!python/object/apply:os.system ['touch evil']",
    "!!python/name:os.system",
    "!!python/object/new:subprocess.Popen [['touch', 'evil']]",
    "!evil x",
)


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return (os.system, ("touch evil",))


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(words: list[str], capsys: pytest.CaptureFixture[str], codes: tuple[int, ...] = (4,)) -> str:
    """What a command says that refuses; it takes no memory and no time to speak of, and leaves nothing."""
    before, start = {path.name for path in Path().iterdir()}, time.process_time()
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    capsys.readouterr()
    code = run(words)
    told = capsys.readouterr().err
    assert code in codes, told
    assert told.startswith(("error: ", "Usage: "))
    assert "Traceback" not in told
    assert {path.name for path in Path().iterdir()} == before
    assert time.process_time() - start < 20.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 2 << 20
    return told


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("flag", ["--system", "--stack", "--calibration", "--plan"])
def test_no_tag_of_yaml_runs(tag: str, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.yaml").write_text(f"name: {tag}\n", encoding="utf-8")
    words = ["estimate", str(GRAPH), "--gpus", "8", flag, "x.yaml"]
    words += [] if flag == "--system" else ["--system", "dgx-h100"]
    refused(words if flag != "--plan" else ["estimate", flag, "x.yaml"], capsys, (2, 4))


@pytest.mark.parametrize(
    "words",
    [["estimate", str(GRAPH), "--gpus", "8", "--system"], ["cost", "dgx-h100", "--prices"], ["estimate", "--plan"],
     ["search", "--space"]], ids=str,
)  # fmt: skip
def test_aliases_of_aliases_are_counted_before_they_take_memory(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("x.yaml").write_text(BOMB, encoding="utf-8")
    assert "more than 200,000 values" in refused([*words, "x.yaml"], capsys)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle"])
def test_no_pickle_is_read(suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(f"x{suffix}").write_bytes(pickle.dumps(Evil()))
    assert "runs code" in refused(["estimate", f"x{suffix}", *ON], capsys)


@pytest.mark.parametrize("name", ["x.pt2", "x.onnx", "x.graph", "x.json", "x.yaml", "x.sqlite"])
def test_a_pickle_of_another_name_is_none_of_what_is_read(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(name).write_bytes(pickle.dumps(Evil()))
    words = {"x.yaml": ["cost", name], "x.sqlite": ["runs", "show", name]}.get(name, ["estimate", name, *ON])
    refused(words, capsys, (2, 4))


def test_no_file_of_an_archive_is_written_where_its_name_says(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("../../evil", "/tmp/slipstick-evil", "..\\evil", "x/models/model.json", "x/../../evil")
    with zipfile.ZipFile("x.pt2", "w") as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), b"{}")
    refused(["trace", "x.pt2"], capsys)
    assert not [name for name in names if Path(name).exists()]


def test_no_file_of_an_archive_is_unpacked_without_end(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        zipfile.ZipFile("x.pt2", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x/models/model.json", "w") as out,
    ):
        for _ in range(300):
            out.write(b" " * (1 << 20))
    assert "is larger than 256,000,000 bytes" in refused(["trace", "x.pt2"], capsys)


@pytest.mark.parametrize("words", [["estimate", "x.graph.gz", *ON], ["compare", "x.json.gz", "x.json.gz"]], ids=str)
def test_nothing_packed_is_unpacked_without_end(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=9) as out:
        for _ in range(300):
            out.write(b" " * (1 << 20))
    Path(words[1]).write_bytes(packed.getvalue())
    assert "256,000,000" in refused(words, capsys)


@pytest.mark.parametrize("place", ["../../../../../../etc/passwd", "/etc/passwd", "link", "/dev/zero"])
def test_weights_of_onnx_come_from_their_own_folder(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("link").symlink_to("/etc/passwd")
    seed = min((ROOT / "tests" / "data" / "onnx").glob("*.onnx"), key=lambda path: path.stat().st_size)
    model = onnx.load(str(seed), load_external_data=False)
    shape = onnx.TensorProto(name="evil", dims=[2], data_type=onnx.TensorProto.INT64)
    shape.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", place), ("length", "16")):
        entry = shape.external_data.add()
        entry.key, entry.value = key, value
    model.graph.initializer.append(shape)
    node = model.graph.node.add()
    node.op_type, node.name = "Reshape", "evil"
    node.input.extend([model.graph.node[0].output[0], "evil"])
    node.output.append("evil_out")
    Path("x.onnx").write_bytes(model.SerializeToString())
    told = refused(["trace", "x.onnx", "--phase", "prefill", "--no-cache"], capsys)
    assert "root:" not in told


@pytest.mark.skipif(os.name != "posix", reason="devices are those of POSIX")
@pytest.mark.parametrize("target", ["/dev/zero", "/dev/stdin", "/proc/self/mem", "/"])
def test_a_link_to_what_is_no_file_is_refused(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name, words in (("x.yaml", ["cost", "x.yaml"]), ("x.graph", ["estimate", "x.graph", *ON])):
        Path(name).symlink_to(target)
        refused(words, capsys, (2, 4))
