"""Tests of reading model configs: names, aliases, paths, and what the messages say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from slipstick.frontend.huggingface.configs.models import CatalogueEntry, Config, aliases, index, names, read_config
from slipstick.ir.errors import NotUnderstoodError, ParseError, UnknownNameError, UsageError

FOLDER = Path(__file__).parents[4] / "frontend" / "catalogue"

WRITTEN_BY_US = {"gpt3-175b", "megatron-22b", "megatron-175b", "megatron-530b", "megatron-1t"}


def test_every_config_file_has_an_index_row_and_the_other_way_round() -> None:
    assert set(names()) == {file.stem for file in FOLDER.glob("*.json")} - {"index"}


def test_families_stay_together_and_sizes_ascend() -> None:
    entries = list(index().values())
    families = list(dict.fromkeys(entry.family for entry in entries))
    key = {entry.name: (families.index(entry.family), entry.num_parameters) for entry in entries}
    assert [key[entry.name] for entry in entries] == sorted(key.values())


@pytest.mark.parametrize("name", names())
def test_an_index_row_is_complete(name: str) -> None:
    entry = index()[name]
    assert isinstance(entry, CatalogueEntry)
    assert entry.name == name
    assert all((entry.family, entry.source, entry.published_parameters, entry.aliases))
    assert re.search(r"arXiv \d{4}\.\d{5}|config\.json of [\w-]+/[\w.-]+", entry.source)
    assert entry.note or entry.source.startswith("config.json of")


def test_the_index_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        index()["gpt2"] = index()["gpt2-xl"]  # type: ignore[index]


@pytest.mark.parametrize("name", names())
def test_a_config_is_canonical_and_free_of_quantisation_and_remote_code(name: str) -> None:
    config = read_config(name)
    fields = cast("dict[str, object]", json.loads(config.text))
    assert config.name == name
    assert config.origin == f"catalogue/{name}.json"
    assert config.text == json.dumps(fields, sort_keys=True, separators=(",", ":"))
    assert config.model_type == fields["model_type"]
    assert not {"auto_map", "quantization_config"} & fields.keys()
    assert all(str(key).isidentifier() and not key.startswith("_") for key in fields)


@pytest.mark.parametrize("name", sorted(WRITTEN_BY_US))
def test_shapes_written_by_us_follow_the_runs(name: str) -> None:
    fields = cast("dict[str, object]", json.loads(read_config(name).text))
    assert {fields[key] for key in ("attn_pdrop", "embd_pdrop", "resid_pdrop")} == {0.1}
    assert (fields["vocab_size"], fields["n_positions"]) == (51200, 2048)
    assert fields["n_inner"] == 4 * cast("int", fields["n_embd"])
    assert fields["tie_word_embeddings"] is True


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("llama-3.1-8b", "llama-3.1-8b"),
        ("Llama-3.1-8B", "llama-3.1-8b"),
        ("llama3.1-8b", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("META-LLAMA/meta-llama-3.1-70b", "llama-3.1-70b"),
        ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("openai-community/gpt2", "gpt2"),
        ("mt-nlg-530b", "megatron-530b"),
    ],
)
def test_an_alias_reads_the_same_config_as_its_name(given: str, name: str) -> None:
    assert read_config(given) == read_config(name)


def test_aliases_are_lower_case_and_cover_every_name() -> None:
    assert all(spelling == spelling.casefold() for spelling in aliases())
    assert {name: name for name in names()}.items() <= aliases().items()
    assert set(aliases().values()) == set(names())


def test_no_spelling_is_listed_twice() -> None:
    listed = [spelling.casefold() for entry in index().values() for spelling in entry.aliases]
    assert len(listed) == len(set(listed))
    assert not set(listed) & set(names())


def test_a_file_and_its_folder_read_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "my-llama"
    folder.mkdir()
    file = folder / "config.json"
    file.write_text('{"num_hidden_layers": 2,\n "model_type": "llama"}', encoding="utf-8")
    by_file = read_config(str(file))
    assert by_file == read_config(str(folder))
    text = '{"model_type":"llama","num_hidden_layers":2}'
    assert by_file == Config(name="my-llama", origin=str(file), text=text, model_type="llama")


def test_a_file_of_another_name_is_called_by_its_stem(tmp_path: Path) -> None:
    file = tmp_path / "tiny.json"
    file.write_bytes(b'\xef\xbb\xbf{"model_type": "gpt2"}')
    assert read_config(str(file)).name == "tiny"


def test_a_local_path_wins_over_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "openai-community" / "gpt2"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "gpt2", "n_layer": 1}', encoding="utf-8")
    assert read_config("openai-community/gpt2").origin == "openai-community/gpt2/config.json"


def test_a_catalogue_name_wins_over_a_folder_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    assert read_config("gpt2").origin == "catalogue/gpt2.json"


def test_the_folder_one_stands_in_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    assert read_config(".").name == tmp_path.name
    assert read_config("config.json").name == tmp_path.name


def message(kind: type[Exception], given: str) -> str:
    with pytest.raises(kind) as caught:
        read_config(given)
    assert type(caught.value) is kind
    return str(caught.value)


def test_an_unknown_name_gets_the_nearest_and_all_names() -> None:
    said = message(UnknownNameError, "llama-3.1-9b")
    assert said == f"{UnknownNameError.of('model', 'llama-3.1-9b', names())}; or the path of a config.json"
    assert "did you mean 'llama-3.1-" in said


def test_an_unknown_name_that_is_a_folder_says_how_to_write_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoint").mkdir()
    assert message(UnknownNameError, "checkpoint").endswith("for the folder of that name write ./checkpoint")


@pytest.mark.parametrize("given", ["", "\0", "a" * 5000])
def test_nonsense_is_an_unknown_name(given: str) -> None:
    assert message(UnknownNameError, given).startswith(f"unknown model '{given}'; allowed: ")


def test_an_unknown_hub_id_is_not_downloaded_and_gets_the_nearest() -> None:
    said = message(UnknownNameError, "meta-llama/Llama-3.3-70B-Instruct")
    assert said.startswith(
        "'meta-llama/Llama-3.3-70B-Instruct' is not a file or folder here, and nothing is downloaded from the hub; "
        "the nearest in the catalogue is 'llama-3.1-70b'; give the path of a config.json, or one of: gpt2, "
    )


def test_a_hub_id_near_nothing_still_lists_the_names() -> None:
    said = message(UnknownNameError, "acme/zzz")
    assert said == (
        "'acme/zzz' is not a file or folder here, and nothing is downloaded from the hub; "
        f"give the path of a config.json, or one of: {', '.join(names())}"
    )


def test_a_hub_id_whose_owner_is_a_local_folder_is_a_mistyped_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    assert message(UsageError, "models/qqq") == ("no file or folder 'models/qqq'; give the path of a config.json")


@pytest.mark.parametrize("given", ["./nowhere", "nowhere.json", "/nowhere/config.json", "~nobody/nowhere", "a/b/c"])
def test_a_missing_path_is_told_apart_from_an_unknown_name(given: str) -> None:
    assert message(UsageError, given) == f"no file or folder '{given}'; give the path of a config.json"


def test_a_missing_path_that_sounds_like_a_model_names_it() -> None:
    assert message(UsageError, "./gpt2-xl.json") == (
        "no file or folder './gpt2-xl.json'; the nearest in the catalogue is 'gpt2-xl'; give the path of a config.json"
    )


def test_a_folder_without_config_names_what_it_holds(tmp_path: Path) -> None:
    nothing = message(UsageError, str(tmp_path))
    assert nothing == f"folder '{tmp_path}' holds no config.json and no other JSON file"
    for name in ("b.json", "a.json"):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    assert message(UsageError, str(tmp_path)) == (
        f"folder '{tmp_path}' holds no config.json; its JSON files are a.json, b.json: name one"
    )


def test_a_config_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    said = message(UsageError, str(tmp_path))
    assert said.startswith(f"cannot read '{tmp_path / 'config.json'}': ")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"[1]", " holds a JSON list; a model config is a JSON object"),
        (b'{"n_layer": 2}', " has no 'model_type'; a model config names it, for example \"llama\""),
        (b'{"model_type": null}', " has model_type None; "),
        (b'{"model_type": ""}', " has model_type ''; "),
        (b'{"model_type": 7}', " has model_type 7; "),
    ],
)
def test_a_file_that_is_no_config_is_named_with_its_problem(tmp_path: Path, data: bytes, problem: str) -> None:
    file = tmp_path / "bad.json"
    file.write_bytes(data)
    assert message(NotUnderstoodError, str(file)).startswith(f"'{file}'{problem}")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", ":1: is not JSON: Expecting value, column 1"),
        (b'{"model_type": "llama",\n}', ":2: is not JSON: "),
        (b'{"model_type":\n "\xff"}', ":2: it is not UTF-8 text: "),
        (b"[" * 100_000, ": brackets are nested more than 100 deep"),
        (b'{"model_type": "a",\n"model_type": "b"}', ":2: key given twice: model_type"),
    ],
)
def test_a_file_that_is_no_json_is_named_with_its_line(tmp_path: Path, data: bytes, problem: str) -> None:
    file = tmp_path / "bad.json"
    file.write_bytes(data)
    assert message(ParseError, str(file)).startswith(f"{file}{problem}")


def test_reading_a_config_imports_nothing_heavy() -> None:
    code = (
        "import sys; from slipstick.frontend.huggingface.configs.models import names, read_config; "
        "read_config(names()[0]); "
        "print([m for m in ('torch', 'transformers', 'pydantic', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
