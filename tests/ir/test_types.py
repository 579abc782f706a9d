"""What a type says of its bytes, and the kinds and widths that there are."""

from __future__ import annotations

import pytest

from veilgraph.ir.plan.tables import BufferKind
from veilgraph.ir.types import Kind, Type, blocks, planes, words


@pytest.mark.parametrize(
    ("type", "text"),
    [(words(40), "words<40>"), (planes(7), "planes<7>"), (blocks(), "blocks<128>")],
)
def test_text_and_back(type: Type, text: str) -> None:
    assert str(type) == text
    assert Type.parse(text) == type


@pytest.mark.parametrize(
    "text",
    [
        *("words<0>", "words<65>", "planes<257>", "blocks<127>", "blocks<256>", "blocks<0>"),
        *("bytes<8>", "blocks", "words<>", ""),
    ],
)
def test_there_is_no_such_type(text: str) -> None:
    with pytest.raises(ValueError, match=r"there is no type|not a valid Kind|invalid literal"):
        Type.parse(text)


@pytest.mark.parametrize(
    ("type", "elements", "stored", "buffer", "message"),
    [
        (words(32), 3, 12, BufferKind.WORDS32, BufferKind.WORDS32),
        (words(7), 3, 12, BufferKind.WORDS32, BufferKind.PACKED),
        (words(33), 3, 24, BufferKind.WORDS64, BufferKind.PACKED),
        (words(64), 3, 24, BufferKind.WORDS64, BufferKind.WORDS64),
        (planes(3), 65, 48, BufferKind.PLANES, BufferKind.PLANES),
        (planes(0), 65, 0, BufferKind.PLANES, BufferKind.PLANES),
        (blocks(), 3, 48, BufferKind.WORDS64, BufferKind.WORDS64),
        (blocks(), 0, 0, BufferKind.WORDS64, BufferKind.WORDS64),
    ],
)
def test_bytes_and_layout_in_memory(
    type: Type, elements: int, stored: int, buffer: BufferKind, message: BufferKind
) -> None:
    assert type.stored_bytes(elements) == stored
    assert (type.buffer, type.message_buffer) == (buffer, message)


def test_a_block_is_two_words_in_memory() -> None:
    assert (blocks().stored, blocks().per_element) == (words(64), 2)
    assert blocks().stored_shape((3, 5)) == (30,)
    assert blocks().stored_shape(()) == (2,)


@pytest.mark.parametrize("type", [words(40), planes(7)])
def test_others_are_stored_as_they_are(type: Type) -> None:
    assert (type.stored, type.per_element) == (type, 1)
    assert type.stored_shape((3, 5)) == (3, 5)


def test_constants_are_of_a_ring_or_bits() -> None:
    assert [words(40).modulus, planes(7).modulus] == [1 << 40, 2]


def test_the_first_elements_of_planes_are_not_first_in_a_message() -> None:
    assert [Type(kind, 128).in_order for kind in Kind] == [True, False, True]
