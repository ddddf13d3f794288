"""All entries of a store's folders in memory, rebuilt from file names: the files are the only truth, any may vanish."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import shutil
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from inference.kvcache.block import HASH_BYTES, StoredEntry, entry_from_name, folder_name
from inference.kvcache.block_file import (
    DamagedFile,
    NewerVersion,
    StateBytes,
    encode_head,
    read_header_and_tokens,
    read_payload,
    remove_abandoned_files,
    unlink,
    write_file,
)
from inference.kvcache.build_notes import BuildNotes
from inference.kvcache.change_log import ChangeLog
from inference.kvcache.fingerprint import Fingerprint
from inference.kvcache.prefix_tree import PrefixTree
from inference.kvcache.read_buffers import ReadBuffers
from inference.kvcache.reuse import TokenArray

_Read = TypeVar("_Read")
_logger = logging.getLogger(__name__)
_TOUCH_INTERVAL_NS = 60 * 10**9


class StoreIndex:
    """Callers hold `lock` while they look at trees; methods that change them take it. Files are read outside of it."""

    def __init__(self, root: Path) -> None:
        """Raises OSError if the folder can neither be listed nor made."""
        self.root = root
        self._root_name = os.fspath(root)
        self.lock = threading.RLock()
        self.bytes_read = 0
        self.bytes_written = 0
        self.num_damaged = 0
        self.store_bytes = 0
        self.counts: Counter[type[StoredEntry]] = Counter()
        self._trees: dict[str, PrefixTree] = {}
        self.foreign: set[str] = set()
        self._buffers = ReadBuffers()
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.changes = ChangeLog(root / "changes.log")
        self.notes = BuildNotes(root)
        self.changes.mark_known()
        remove_abandoned_files(root, os.listdir(root))
        for folder in self._folders():
            remove_abandoned_files(folder, self._list(folder))

    def tree(self, fingerprint: Fingerprint) -> PrefixTree:
        return self._tree_in(folder_name(fingerprint))

    def _tree_in(self, folder: str) -> PrefixTree:
        if folder not in self._trees:
            self._trees[folder] = PrefixTree(folder)
        return self._trees[folder]

    def trees(self) -> list[PrefixTree]:
        return list(self._trees.values())

    def entries(self) -> Iterator[StoredEntry]:
        """Those on disk."""
        return (e for tree in self._trees.values() for e in tree.entries.values() if e.is_stored)

    def path(self, entry: StoredEntry) -> Path:
        return self.root / entry.folder / entry.name

    def has(self, entry: StoredEntry) -> bool:
        """Whether a file of this name is stored."""
        with self.lock:
            tree = self._trees.get(entry.folder)
            known = tree.entries.get(entry.name) if tree else None
            return known is not None and known.is_stored

    def is_foreign(self, entry: StoredEntry) -> bool:
        """What has this name is a later version's file, or no file: it is neither used nor overwritten."""
        return f"{entry.folder}/{entry.name}" in self.foreign

    def refresh(self, *, forced: bool = False) -> None:
        """Bring the index up to the files, if another process changed them (forced: whoever did)."""
        with self.lock:
            if not forced and not self.changes.changed_by_others():
                return
            self.changes.mark_known()
            try:
                folders = self._folders()
                for folder in folders:
                    self._list(folder)
                names = {folder.name for folder in folders}
                for entry in [entry for entry in self.entries() if entry.folder not in names]:
                    self.forget(entry)
            except OSError as error:
                _logger.warning("the store cannot be listed: %s", error)

    def add_waiting(self, entry: StoredEntry) -> None:
        """An entry that is to be written: found by those who ask what need not be stored, by no one else."""
        entry.is_stored = False
        with self.lock:
            self._tree_in(entry.folder).add(entry)

    def write(
        self, entry: StoredEntry, fingerprint: Fingerprint, token_ids: TokenArray, payload: StateBytes
    ) -> None:
        """Write an entry's file and count it as stored. token_ids: those that go into the file. Raises OSError."""
        path = self.path(entry)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with self.lock:
            self.notes.write_into(entry.folder)
        head = encode_head(fingerprint, entry.name, token_ids, payload)
        write_file(path, head, payload.data)
        with self.lock:
            self.bytes_written += len(head) + payload.size
            self.changes.append_written(len(head) + payload.size)
            status = path.stat()
            tree = self._tree_in(entry.folder)
            known = tree.entries.get(entry.name)
            if known is None:
                tree.add(entry)
                known = entry
            if not known.is_stored:
                known.set_stored(status.st_size, status.st_mtime_ns)
                self.counts[type(known)] += 1
                self.store_bytes += known.file_bytes

    @contextlib.contextmanager
    def open_payload(self, entry: StoredEntry, *, is_use: bool = True) -> Iterator[StateBytes | None]:
        """The verified payload, valid inside the block. None: gone or damaged, and no longer in the index.

        is_use false: looking at it is no reason to keep it longer.
        """
        with self.lock:
            entry.ref_count += 1
        read = None
        try:
            path = os.path.join(self._root_name, entry.folder, entry.name)
            read = self._reading(entry, lambda: read_payload(path, self._buffers))
            if read is None:
                yield None
                return
            with self.lock:
                self.bytes_read += entry.file_bytes
            if is_use:
                self.touch(entry)
            yield read[0]
        finally:
            if read is not None:
                self._buffers.give_back(read[1])
            with self.lock:
                entry.ref_count -= 1

    def token_ids(self, entry: StoredEntry) -> TokenArray | None:
        """The ids that the entry's file holds, read once. None: gone or damaged, and no longer in the index."""
        if entry.token_ids is None:
            read = self._reading(entry, lambda: read_header_and_tokens(self.path(entry)))
            entry.token_ids = read[1] if read else None
        return entry.token_ids

    def _reading(self, entry: StoredEntry, read: Callable[[], _Read]) -> _Read | None:
        try:
            return read()
        except FileNotFoundError:
            _logger.info("%s is gone: a miss", entry)
            self.forget(entry)
        except NewerVersion as error:
            _logger.info("%s is not used: %s", entry, error)
            self.foreign.add(f"{entry.folder}/{entry.name}")
            self.forget(entry)
        except DamagedFile as error:
            _logger.warning("%s is removed: %s", entry, error)
            self.num_damaged += 1
            self.remove(entry)
        except OSError as error:
            _logger.warning("%s cannot be read: %s", entry, error)
            self._leave_special(entry)
            self.forget(entry)
        return None

    def touch(self, entry: StoredEntry) -> None:
        """Note a use, for other processes too at most once a minute."""
        now_ns = time.time_ns()
        entry.last_access_ns = now_ns
        if now_ns - entry.modified_ns < _TOUCH_INTERVAL_NS:
            return
        try:
            os.utime(self.path(entry), ns=(now_ns, now_ns))
            entry.modified_ns = now_ns
        except OSError as error:
            _logger.info("%s could not be touched: %s", entry, error)

    def set_age(self, entry: StoredEntry, last_access_ns: int) -> None:
        """Of an entry made from another's rows: making it was no use of it."""
        with contextlib.suppress(OSError):
            os.utime(self.path(entry), ns=(last_access_ns, last_access_ns))
            entry.last_access_ns = entry.modified_ns = last_access_ns

    def used_by_others(self, entry: StoredEntry) -> bool:
        """Whether another process used it since this one looked last."""
        try:
            modified_ns = self.path(entry).stat().st_mtime_ns
        except OSError:
            return False
        if modified_ns <= entry.modified_ns:
            return False
        entry.modified_ns = modified_ns
        entry.last_access_ns = max(entry.last_access_ns, modified_ns)
        return True

    def forget(self, entry: StoredEntry) -> None:
        """Take it out of the index only."""
        with self.lock:
            tree = self._trees.get(entry.folder)
            if tree is not None and tree.entries.get(entry.name) is entry:
                tree.remove(entry)
                if entry.is_stored:
                    self.counts[type(entry)] -= 1
                    self.store_bytes -= entry.file_bytes

    def remove(self, entry: StoredEntry, *, evicted: bool = False) -> None:
        """Take it out of the index and off the disk."""
        self.forget(entry)
        if self._leave_special(entry) or not unlink(self.path(entry)):
            return
        with self.lock:
            if evicted:
                self.changes.append_evicted(entry)
            else:
                self.changes.append_removed()

    def _leave_special(self, entry: StoredEntry) -> bool:
        """Whether a pipe, a link or a folder, which the store never made, stands where the entry's file was. It is then
        foreign: neither used nor overwritten nor removed."""
        try:
            is_special = not stat.S_ISREG(os.lstat(self.path(entry)).st_mode)
        except OSError:
            return False
        if is_special:
            self.foreign.add(f"{entry.folder}/{entry.name}")
        return is_special

    def wipe(self) -> None:
        """Remove every fingerprint's folder with all that is in it. Raises OSError."""
        with self.lock:
            for folder in self._folders():
                shutil.rmtree(folder)
            self._trees.clear()
            self.counts.clear()
            self.foreign.clear()
            self.store_bytes = 0
            self.changes.append_removed()

    def _folders(self) -> list[Path]:
        """Folders of fingerprints. Raises OSError."""
        with os.scandir(self.root) as found:
            return [
                Path(entry.path)
                for entry in found
                if len(entry.name) == 2 * HASH_BYTES and entry.is_dir(follow_symlinks=False)
            ]

    def _list(self, folder: Path) -> list[str]:
        """Bring the index up to one folder's files; names that are not the store's. Raises OSError."""
        tree = self._tree_in(folder.name)
        known = tree.entries
        names = set()
        found: list[StoredEntry] = []
        others: list[str] = []
        # A hundred thousand new objects that all stay would only make the collector run for nothing.
        collecting = gc.isenabled()
        gc.disable()
        try:
            with os.scandir(folder) as files:
                for file in files:
                    name = file.name
                    if name in known:
                        names.add(name)
                        if known[name].is_stored:
                            continue
                    try:
                        status = file.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    entry = entry_from_name(folder.name, name, status.st_size, status.st_mtime_ns)
                    if entry is None:
                        others.append(name)
                    elif not stat.S_ISREG(status.st_mode):
                        # Whatever a pipe, a link or a folder of such a name is, it is not the store's.
                        self.foreign.add(f"{folder.name}/{name}")
                    else:
                        found.append(entry)
            for entry in [e for e in known.values() if e.is_stored and e.name not in names]:
                self.forget(entry)
            self._add_found(tree, found)
        finally:
            if collecting:
                gc.enable()
        return others

    def _add_found(self, tree: PrefixTree, found: list[StoredEntry]) -> None:
        if self.foreign:
            found = [entry for entry in found if not self.is_foreign(entry)]
        for entry in found:
            waiting = tree.entries.get(entry.name)
            if waiting is None:
                tree.add(entry)
            else:
                waiting.set_stored(entry.file_bytes, entry.modified_ns)
        self.counts.update(map(type, found))
        self.store_bytes += sum(entry.file_bytes for entry in found)
