"""A note in each fingerprint's folder that tells what the fingerprint was made of: so that it can be told afterwards
that a prompt was stored by another build of the library, or with other settings, from the same model file."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from inference.kvcache.block import folder_name
from inference.kvcache.block_file import open_regular, write_file
from inference.kvcache.fingerprint import Fingerprint, FingerprintFields, fingerprint

_logger = logging.getLogger(__name__)
_NOTE_NAME = "fingerprint.json"
_MAX_NOTE_BYTES = 1 << 16


class BuildNotes:
    """Not locked: the store's lock guards it. Notes may be lost without harm."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._introduced: dict[str, FingerprintFields] = {}
        self._read: dict[str, FingerprintFields] = {}

    def introduce(self, fields: FingerprintFields) -> Fingerprint:
        """These fields' fingerprint. Its folder gets its note when something is first written there."""
        made = fingerprint(fields)
        self._introduced[folder_name(made)] = fields
        return made

    def write_into(self, folder: str) -> None:
        """To be called before each file that is written there: another process may have wiped the folder."""
        path = self._root / folder / _NOTE_NAME
        fields = self._introduced.get(folder)
        if fields is None or path.exists():
            return
        try:
            write_file(path, json.dumps(asdict(fields)).encode())
        except OSError as error:
            _logger.info("a folder of the store has no note: %s", error)

    def others_of_the_model(
        self, made: Fingerprint, folders: Iterable[str]
    ) -> Iterator[tuple[Fingerprint, bool]]:
        """Those fingerprints of the folders that were made from the same model file, and whether by the same build of
        the library."""
        own = self._introduced.get(folder_name(made))
        if own is None:
            return
        for folder in folders:
            other = self._fields_of(folder)
            if other is None or other == own or other.model_sha256 != own.model_sha256:
                continue
            same_build = (other.library_build, other.layout_version) == (
                own.library_build,
                own.layout_version,
            )
            yield fingerprint(other), same_build

    def _fields_of(self, folder: str) -> FingerprintFields | None:
        """None: no note, or not one of this folder."""
        known = self._introduced.get(folder) or self._read.get(folder)
        if known is not None:
            return known
        try:
            with open_regular(self._root / folder / _NOTE_NAME) as file:
                members = json.loads(file.read(_MAX_NOTE_BYTES))
            fields = FingerprintFields(**{**members, "lora": tuple(members["lora"])})
            # Also tells a note that was copied here, or written by a version with other fields.
            if folder_name(fingerprint(fields)) != folder:
                raise ValueError("of another fingerprint")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            _logger.info("the note in %s is not read: %s", folder, error)
            return None
        self._read[folder] = fields
        return fields
