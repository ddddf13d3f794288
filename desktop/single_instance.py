"""One window per data folder: a lock that dies with its process, and a socket to raise the window that holds it."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import IO

from PySide6.QtCore import QObject, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

RAISED = b"raised\n"


class SingleInstance(QObject):
    """The lock is the system's own (flock, msvcrt), so a killed process leaves none behind, and no file is ever stale."""

    raise_requested = Signal()

    def __init__(self, data_folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lock_path = data_folder / "lock"
        self._lock_file: IO[bytes] | None = None
        digest = hashlib.sha256(os.fsencode(data_folder.resolve())).hexdigest()
        self._server_name = f"everwarm-{digest[:20]}"
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._answer)

    def acquire(self) -> bool:
        """True: this process owns the data folder until it ends. Raises OSError where no lock file can be made."""
        lock_file = self._lock_path.open("ab")
        try:
            _lock(lock_file)
        except OSError:
            lock_file.close()
            return False
        self._lock_file = lock_file
        # Only a killed owner leaves its socket; holding the lock shows that nobody listens on it.
        QLocalServer.removeServer(self._server_name)
        self._server.listen(self._server_name)
        return True

    def ask_owner_to_raise(self, timeout_ms: int = 2000) -> bool:
        """Called where acquire() gave False. False: the owner did not answer."""
        socket = QLocalSocket()
        socket.connectToServer(self._server_name)
        if not socket.waitForConnected(timeout_ms):
            return False
        answered = socket.waitForReadyRead(timeout_ms) and bytes(socket.readAll().data()) == RAISED
        return answered

    def release(self) -> None:
        self._server.close()
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    def _answer(self) -> None:
        """Whoever connects wants the window; there is nothing else to ask for."""
        while (socket := self._server.nextPendingConnection()) is not None:
            self.raise_requested.emit()
            socket.disconnected.connect(socket.deleteLater)
            socket.write(RAISED)
            socket.disconnectFromServer()


def _lock(lock_file: IO[bytes]) -> None:
    """Raises OSError if another process holds it."""
    if sys.platform == "win32":
        lock_file.seek(0)
        msvcrt.locking(lock_file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
