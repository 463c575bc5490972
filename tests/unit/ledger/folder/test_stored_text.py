# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from thresher.ledger.folder.opening import masked, yaml_text

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)
)
KEYS = st.one_of(st.text(min_size=1, max_size=6), st.sampled_from(["yes", "null", "path", "a b", "- x", "#"]))
DATA = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)


@given(st.dictionaries(KEYS, DATA, max_size=4))
def test_every_yaml_reader_reads_the_same_data(data):
    assert yaml.safe_load(yaml_text(data)) == _as_yaml_reads(data)


def _as_yaml_reads(value):
    """PyYAML follows YAML 1.1, where 1e+16 is a text; readers of 1.2 take it as a number."""
    if isinstance(value, dict):
        return {key: _as_yaml_reads(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_yaml_reads(item) for item in value]
    if isinstance(value, float):
        return yaml.safe_load(yaml_text(value))
    return value


def test_a_recipe_reads_like_one():
    recipe = {"name": "english", "stages": [{"JsonlReader": {"file_paths": "in"}}, "AddId"], "params": {}}

    assert yaml_text(recipe) == (
        'name: "english"\nstages:\n  - JsonlReader:\n      file_paths: "in"\n  - "AddId"\nparams: {}\n'
    )


def test_secrets_in_storage_options_are_hidden_and_all_else_is_not():
    given_options = {"key": "k", "secret": "s", "endpoint_url": "http://e", "client_kwargs": {"password": "p", "n": 1}}

    assert masked({"key": "a column", "storage_options": given_options}) == {
        "key": "a column",
        "storage_options": {
            "key": "***",
            "secret": "***",
            "endpoint_url": "http://e",
            "client_kwargs": {"password": "***", "n": 1},
        },
    }
