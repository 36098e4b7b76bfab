"""Plain twins of the tokenisers: words and runs of characters, split with Python's strings."""

from __future__ import annotations

from streampgs.kernels.grams import TEXT_END, TEXT_START

PUNCTUATION = [(0x80, 0xC0), (0x2000, 0x2070), (0x3000, 0x3040)]
LETTERS_AMONG_IT = "ªµº"


def characters_of(text: bytes) -> list[tuple[str, bytes]]:
    """Each character with its bytes. A byte that belongs to no character is an item of its own."""
    return [
        (character, character.encode(errors="surrogateescape")) for character in text.decode(errors="surrogateescape")
    ]


def is_letter(character: str) -> bool:
    if ord(character) < 0x80:
        return (character.isalnum() and character.isascii()) or character == "_"
    return character in LETTERS_AMONG_IT or not any(low <= ord(character) < high for low, high in PUNCTUATION)


def ascii_lower(text: bytes) -> bytes:
    return text.lower()  # bytes.lower() changes A to Z only


def plain_words(text: bytes) -> list[bytes]:
    words, word = [], b""
    for character, its_bytes in [*characters_of(text), (" ", b" ")]:
        if is_letter(character):
            word += ascii_lower(its_bytes)
        elif word:
            words.append(word)
            word = b""
    return words


def plain_word_grams(text: bytes, shortest: int, longest: int) -> list[bytes]:
    words = plain_words(text)
    found = [
        (first, size, b" ".join(words[first : first + size]))
        for size in range(shortest, longest + 1)
        for first in range(len(words) - size + 1)
    ]
    return [gram for _, _, gram in sorted(found)]


def plain_character_grams(text: bytes, shortest: int, longest: int) -> list[bytes]:
    if not text:
        return []
    parts = [bytes([TEXT_START]), *(ascii_lower(part) for _, part in characters_of(text)), bytes([TEXT_END])]
    return [
        b"".join(parts[first : first + size])
        for first in range(len(parts))
        for size in range(shortest, longest + 1)
        if first + size <= len(parts)
    ]
