# SPDX-License-Identifier: Apache-2.0
"""A tokenizer of whole words, for tests that look at what becomes of ids."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

WORDS = {"?": 0, "a": 1, "b": 2, "c": 3, "</s>": 4}


def word_tokenizer(folder: Path, words: Mapping[str, int] = WORDS) -> str:
    """Write a tokenizer.json in which words are tokens, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tokenizer.json"
    model = {"type": "WordLevel", "vocab": dict(words), "unk_token": next(iter(words))}
    path.write_text(json.dumps({"version": "1.0", "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}))
    return str(path)
