"""`Source` opens one input file, compressed or not, and reports unreadable bytes and lines by their position."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from fkge.errors import GraphError
from fkge.progress import Progress, Task

_CHUNK = 1 << 20
_BOM = b"\xef\xbb\xbf"


class Source:
    """An open file: unpacked bytes by `read`, text by `lines`; one of the two, once.

    Attributes:
        path: the file, for messages.
        line: the number (1-based) of the line that the bytes read so far end in.
    """

    def __init__(self, path: Path, file: BufferedReader, task: Task) -> None:
        self.path = path
        self.line = 1
        self._file = file
        self._archive = gzip.GzipFile(fileobj=file) if path.suffix.lower() == ".gz" else None
        self._task = task
        self._reported = 0
        self._started = False
        self._buffer = b""
        self._place = 0

    def read(self, size: int) -> bytes:
        """At most `size` bytes, none at the end. The signature parsers expect of a binary file."""
        if self._place >= len(self._buffer):
            self._buffer, self._place = self._next(), 0
        taken = self._buffer[self._place : self._place + size]
        self._place += len(taken)
        return taken

    def lines(self) -> Iterator[tuple[int, str]]:
        """Numbered lines without their ends. Only LF and CRLF end a line: labels may hold any other."""
        first, rest = 1, b""
        while chunk := self._next():
            cut = chunk.rfind(b"\n") + 1
            if not cut:
                rest += chunk
                continue
            block, rest = rest + chunk[:cut], chunk[cut:]
            # The block ends in a line end, so what follows the last one is not a line.
            lines = self._decode(block, first).split("\n")[:-1]
            yield from enumerate(lines, first)
            first += len(lines)
        if rest:
            yield first, self._decode(rest, first).removesuffix("\r")

    def blame_archive(self, error: GraphError) -> None:
        """Raise if what looks like `error` in the text is due to a corrupt archive.

        Gzip notices damage late, mostly by the checksum at the very end; until then it hands out garbage.
        """
        try:
            while self._archive and self._archive.read1(_CHUNK):
                pass
        except (gzip.BadGzipFile, zlib.error) as damage:
            raise _corrupt(self.path, damage, error.line) from None
        except (EOFError, OSError):
            pass  # cut short further on, which does not garble what came before

    def _decode(self, block: bytes, first: int) -> str:
        try:
            text = block.decode()
        except UnicodeDecodeError as error:
            line = first + block.count(b"\n", 0, error.start)
            problem = f"byte 0x{block[error.start]:02x} is not valid UTF-8"
            raise GraphError(self.path, problem, "Save the file as UTF-8.", line) from None
        return text.replace("\r\n", "\n") if "\r" in text else text

    def _next(self) -> bytes:
        chunk = self._unpack()
        if not self._started:
            self._started = True
            while 0 < len(chunk) < len(_BOM) and (more := self._unpack()):
                chunk += more
            chunk = chunk.removeprefix(_BOM) or self._unpack()
        self.line += chunk.count(b"\n")
        consumed = self._file.tell() - self._reported
        # A packed file hands out small pieces; telling of each would cost more than reading it.
        if consumed >= _CHUNK or not chunk:
            self._task.advance(consumed)
            self._reported += consumed
        return chunk

    def _unpack(self) -> bytes:
        """Return the next piece of the file."""
        try:
            # `read1` hands out all that a truncated archive has before it complains, so the message names that line.
            return (self._archive or self._file).read1(_CHUNK)
        except EOFError:
            problem = "the gzip archive is truncated: it ends in the middle of this line"
            raise GraphError(self.path, problem, "Copy or download it again.", self.line) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise _corrupt(self.path, error, self.line) from None
        except OSError as error:
            raise unreadable(self.path, error) from None


@contextmanager
def opened(path: Path, progress: Progress) -> Iterator[Source]:
    """Open `path` (unpacking ``.gz``), reporting the bytes consumed of the file as it lies on disk.

    Raises:
        GraphError: the file cannot be read, or is damaged.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise unreadable(path, error) from None
    with file, progress.task(f"reading {path.name}", path.stat().st_size, "B") as task:
        source = Source(path, file, task)
        try:
            yield source
        except GraphError as error:
            source.blame_archive(error)
            raise


def _corrupt(path: Path, error: Exception, line: int | None) -> GraphError:
    return GraphError(path, f"the gzip archive is corrupt ({error})", "Copy or download it again.", line)


def wrong_columns(path: Path, columns: int, advice: str, line: int) -> GraphError:
    """Return the error for a row that is no triple.

    Args:
        path, line: where the row is; columns: how many it has.
        advice: what to do, a sentence.
    """
    found = "1 column" if columns == 1 else f"{columns} columns"
    return GraphError(path, f"this row has {found} where 3 are expected", advice, line)


def unreadable(path: Path, error: OSError) -> GraphError:
    """Return the error for a file that the operating system refuses."""
    advice = "Check the path." if isinstance(error, FileNotFoundError) else "Check its permissions."
    return GraphError(path, f"cannot be read ({error.strerror or error})", advice)
