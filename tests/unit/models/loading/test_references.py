# SPDX-License-Identifier: Apache-2.0
"""Where models come from: folders, URLs that are copied once, names on the hub; and files that are refused."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from thresher.errors import InputError, MissingPackageError, UsageError
from thresher.models.inference.text_model import ClassifierModel
from thresher.models.loading import reference as module
from thresher.models.loading.folder import ModelFolder
from thresher.models.loading.reference import ModelReference


def save(folder: Path, **files: bytes) -> Path:
    """Write files into a folder; `__` in a name stands for a full stop."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_bytes(content)
    return folder


def test_a_local_folder_is_used_where_it_is_and_must_have_the_checksums(tmp_path: Path) -> None:
    folder = save(tmp_path / "model", model__safetensors=b"weights")
    digest = hashlib.sha256(b"weights").hexdigest()
    assert ModelReference(str(folder), "x", {"model.safetensors": digest.upper()}).fetch() == str(folder)
    assert ModelReference(f"file://{folder}", "x").fetch() == str(folder)
    wrong = ModelReference(str(folder), "x.model", {"model.safetensors": "0" * 64})
    with pytest.raises(InputError, match=f"x.model: .*model.safetensors has the sha256 {digest}, and 0000"):
        wrong.fetch()
    with pytest.raises(InputError, match=r"sha256 names 'other.bin', and .* has no such file"):
        ModelReference(str(folder), "x", {"other.bin": digest}).fetch()
    with pytest.raises(UsageError, match="is not 64 hexadecimal digits"):
        ModelReference(str(folder), "x", {"model.safetensors": "abc"})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvidia/domain-classifier", "hub"),
        ("hf:nvidia/domain-classifier", "hub"),
        ("owner/name@v1.0", "hub"),
        ("./owner/name", "folder"),
        ("/models/one", "folder"),
        ("models/of/mine", "folder"),
        ("s3://bucket/model", "url"),
        ("https://host/model", "url"),
    ],
)
def test_names_tell_where_a_model_comes_from(name: str, kind: str) -> None:
    assert ModelReference(name, "x").kind == kind


def test_credentials_in_a_url_are_kept_apart_from_it() -> None:
    made = ModelReference("s3://KEY:SECRET@bucket/model", "x")
    assert made.name == "s3://bucket/model"
    assert "SECRET" not in repr(made)


def test_a_folder_that_exists_wins_over_a_name_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "owner" / "name", config__json=b"{}")
    monkeypatch.chdir(tmp_path)
    assert ModelReference("owner/name", "x").kind == "folder"


def test_what_is_missing_is_said_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (problem,) = ModelReference(str(tmp_path / "none"), "Stage.model").problems()
    assert problem.startswith("Stage.model: ")
    assert "does not exist; give a folder that holds a model" in problem
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    (problem,) = ModelReference("owner/name", "Stage.model").problems()
    assert "pip install 'thresher[models]'" in problem
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingPackageError):
        ModelReference("owner/name", "Stage.model").fetch()


def test_offline_the_cache_of_the_hub_is_used_and_what_it_lacks_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants", reason="needs the extra `models`")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    snapshot = save(tmp_path / "models--owner--name" / "snapshots" / ("a" * 40), config__json=b"{}")
    save(tmp_path / "models--owner--name" / "refs", main=b"a" * 40)
    assert ModelReference("owner/name", "x", cache_dir=str(tmp_path)).fetch() == str(snapshot)
    with pytest.raises(InputError, match="HF_HUB_OFFLINE is set, and it is not in the cache"):
        ModelReference("owner/other", "x", cache_dir=str(tmp_path)).fetch()


FETCH = """
import json, sys
from thresher.models.loading.reference import ModelReference
url, cache, options = sys.argv[1:]
print(ModelReference(url, "x", cache_dir=cache, storage_options=json.loads(options)).fetch())
"""


@pytest.mark.s3
def test_processes_that_want_the_same_model_at_once_get_one_whole_copy(
    tmp_path: Path, bucket: str, s3_options: dict[str, Any]
) -> None:
    import s3fs

    remote = s3fs.S3FileSystem(**s3_options, skip_instance_cache=True)
    for name, content in {"model.safetensors": b"w" * 100_000, "a/b.json": b"{}", "pytorch_model.bin": b"p"}.items():
        remote.pipe_file(f"{bucket}/models/one/{name}", content)
    url, cache = f"s3://{bucket}/models/one", tmp_path / "cache"
    command = [sys.executable, "-c", FETCH, url, str(cache), json.dumps(s3_options)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    places = {process.communicate(timeout=120)[0].strip() for process in started}
    (place,) = places
    found = {str(path.relative_to(place)): path.read_bytes() for path in Path(place).rglob("*") if path.is_file()}
    assert found == {"model.safetensors": b"w" * 100_000, "a/b.json": b"{}"}
    assert sorted(path.name for path in cache.iterdir()) == [os.path.basename(place), f"{os.path.basename(place)}.lock"]

    remote.pipe_file(f"{bucket}/models/one/a/b.json", b'{"new": 1}')
    again = ModelReference(url, "x", cache_dir=str(cache), storage_options=s3_options)
    assert again.fetch() != place
    assert (Path(again.fetch()) / "a" / "b.json").read_bytes() == b'{"new": 1}'
    with pytest.raises(InputError, match="has the sha256"):
        ModelReference(url, "x", {"a/b.json": "0" * 64}, cache_dir=str(tmp_path), storage_options=s3_options).fetch()
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["cache"]
    with pytest.raises(InputError, match="there are no files below"):
        ModelReference(f"s3://{bucket}/none", "x", cache_dir=str(cache), storage_options=s3_options).fetch()


def test_pickled_weights_are_refused_unless_they_are_allowed(tmp_path: Path) -> None:
    folder = save(tmp_path / "model", pytorch_model__bin=pickle.dumps({}), config__json=b"{}")
    (problem,) = ModelFolder(str(folder), "Stage.model").problems()
    assert f"Stage.model: {folder}/pytorch_model.bin is a pickle, a format that can run code" in problem
    assert "allow_pickle=True" in problem
    assert ModelFolder(str(folder), "x", allow_pickle=True).weights() == f"{folder}/pytorch_model.bin"
    (problem,) = [
        text for text in ClassifierModel(ModelReference(str(folder), "S.model")).problems() if "pickle" in text
    ]
    (folder / "model.safetensors").write_bytes(b"")
    assert ModelFolder(str(folder), "x").weights() == f"{folder}/model.safetensors"
    with pytest.raises(InputError, match="has no weights"):
        ModelFolder(str(tmp_path), "x").weights()


def test_the_files_say_how_many_tokens_a_model_takes(tmp_path: Path) -> None:
    def limit(max_length: int | None, **files: Any) -> int | None:
        content = {name: json.dumps(value).encode() for name, value in files.items()}
        return ModelFolder(str(save(tmp_path / str(len(os.listdir(tmp_path))), **content)), "x").limited(max_length)

    assert limit(None) is None
    assert limit(700) == 700
    assert limit(None, tokenizer_config__json={"model_max_length": 10**30}) is None
    assert (
        limit(None, tokenizer_config__json={"model_max_length": 256}, config__json={"max_position_embeddings": 512})
        == 256
    )
    assert limit(700, config__json={"max_position_embeddings": 512}) == 512
    assert limit(700, config__json={"max_position_embeddings": 514, "model_type": "xlm-roberta"}) == 512
    assert limit(700, config__json={"max_position_embeddings": 512, "position_biased_input": False}) == 700
    assert limit(None, sentence_bert_config__json={"max_seq_length": 128}) == 128
