# SPDX-License-Identifier: Apache-2.0
"""What may become an image, and what is refused because it is not known."""

from __future__ import annotations

import pytest

from thresher.kernels.native_entry import NoEntry, parameters_of
from thresher.kernels.native_link import CannotLink, link
from thresher.kernels.signatures import types

llvm = pytest.importorskip("llvmlite.binding")


def compiled(text: str, model: str = "large") -> bytes:
    """An object file of some code in LLVM's own language."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    made: bytes = (
        llvm.Target.from_default_triple().create_target_machine(codemodel=model).emit_object(llvm.parse_assembly(text))
    )
    if made[18:20] != b"\x3e\x00":
        pytest.skip("images are made for x86-64 only")
    return made


CALLER = "declare i64 @other(i64)\ndefine i64 @entry(i64 %a) { %b = call i64 @other(i64 %a)\n ret i64 %b }"
OTHER = "define i64 @other(i64 %a) { %b = add i64 %a, 5\n ret i64 %b }"


def test_what_one_object_calls_in_another_is_found() -> None:
    image = link([compiled(CALLER), compiled(OTHER)], "entry")
    assert len(image.own) == 1
    assert not image.outside
    place, target = image.own[0]
    assert 0 <= place < len(image.content)
    assert 0 <= target < len(image.content)


def test_functions_of_the_c_library_are_left_to_be_filled_in() -> None:
    called = "call i8* @memset(i8* %a, i32 0, i64 9)"
    text = f"declare i8* @memset(i8*, i32, i64)\ndefine void @entry(i8* %a) {{ {called}\n ret void }}"
    assert [name for _, name in link([compiled(text)], "entry").outside] == ["memset"]


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(CannotLink, match="it needs other"):
        link([compiled(CALLER)], "entry")
    with pytest.raises(CannotLink, match="relocation of kind"):
        link([compiled(CALLER, model="small"), compiled(OTHER)], "entry")
    with pytest.raises(CannotLink, match="no missing"):
        link([compiled(OTHER)], "missing")
    with pytest.raises(CannotLink, match="variables of its own"):
        link([compiled("@held = global i64 7\n" + OTHER)], "other")
    with pytest.raises(CannotLink, match="no object file"):
        link([b"\x7fELF" + bytes(100)], "entry")


def test_only_arrays_and_whole_numbers_are_taken() -> None:
    both = types.void(types.Tuple((types.uint8[::1], types.Tuple((types.int64, types.int64[:, ::1])))))
    assert [getattr(kind, "ndim", 0) for kind in parameters_of(both)] == [1, 0, 2]
    with pytest.raises(NoEntry):
        parameters_of(types.void(types.float64))
