"""How the bytes of a file become text and the same bytes again.

The form of a file is its codec, its byte order mark and its line ends. Reading never loses a byte: what is not UTF-8
(with or without mark) and not marked UTF-16 is read as Latin-1, in which every byte is a character. So an edit changes
the bytes it names and no others. Bytes with NULs in them that are not UTF-16 are binary: no text at all.
"""

from __future__ import annotations

import codecs
from typing import NamedTuple

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)  # UTF-32-LE before UTF-16-LE: its mark begins with the other's

_SIGNATURES = (
    (b"\x89PNG\r\n", "a PNG image"), (b"\xff\xd8\xff", "a JPEG image"), (b"GIF8", "a GIF image"),
    (b"RIFF", "a RIFF file (image, sound or video)"), (b"%PDF-", "a PDF document"), (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "gzip data"), (b"BZh", "bzip2 data"), (b"\xfd7zXZ", "xz data"), (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\x7fELF", "an ELF program"), (b"SQLite format 3", "an SQLite database"), (b"\xca\xfe\xba\xbe", "a program"),
    (b"BM", "a BMP image"), (b"II*\0", "a TIFF image"), (b"MM\0*", "a TIFF image"), (b"OggS", "Ogg sound"),
    (b"ID3", "MP3 sound"), (b"GGUF", "a model file"),
)  # fmt: skip


class Form(NamedTuple):
    """What a file's bytes are besides their text."""

    codec: str
    mark: bytes

    def describe(self) -> str:
        """The form in words where it is not plain UTF-8, else ""."""
        if self.codec == "utf-8":
            return "UTF-8 with a byte order mark" if self.mark else ""
        return "not UTF-8, read as Latin-1" if self.codec == "latin-1" else self.codec.upper()


PLAIN = Form("utf-8", b"")
UNKNOWN = "binary data"


def decode(raw: bytes) -> tuple[str, Form] | None:
    """The text of `raw`, line ends as they are, and its form; None for binary data."""
    for mark, codec in _MARKS:
        if raw.startswith(mark):
            form = Form(codec, mark)
            text = _exact(raw[len(mark) :], codec)
            return (text, form) if text is not None else None
    text = None if b"\0" in raw else _exact(raw, "utf-8")
    if text is not None:
        return text, PLAIN
    if b"\0" in raw or kind_of_binary(raw) != UNKNOWN:
        return None
    return raw.decode("latin-1"), Form("latin-1", b"")


def encode(text: str, form: Form) -> bytes:
    """The bytes of `text` in `form`. Raises: `UnicodeEncodeError` when the form has no such character."""
    return form.mark + text.encode(form.codec)


def _exact(raw: bytes, codec: str) -> str | None:
    try:
        text = raw.decode(codec)
    except UnicodeDecodeError:
        return None
    return text if text.encode(codec, "replace") == raw else None


def kind_of_binary(raw: bytes) -> str:
    """What binary data is, by its first bytes."""
    return next((kind for signature, kind in _SIGNATURES if raw.startswith(signature)), UNKNOWN)


def line_end(text: str) -> str:
    """The line end that `text` uses most: LF or CRLF."""
    crlf = text.count("\r\n")
    return "\r\n" if crlf * 2 > text.count("\n") else "\n"
