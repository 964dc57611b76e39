"""Locks on single bytes of a file that processes share; the kernel takes them back when a process dies."""

import errno
import fcntl
import os
import struct
import weakref

__all__ = ["LockFile"]

_FLOCK = "hhqqi4x"  # struct flock, 64 bits: type, whence, start, length, pid
_REFUSED = (errno.EAGAIN, errno.EACCES)


class LockFile:
    """A file that is opened for its locks alone.

    These are Linux's locks of open file descriptions: they belong to this object, not to its process, so readers and
    writers of one process exclude each other as those of several do. The file need not be as long as the bytes that
    are locked. Forked children get none of the locks.

    Args:
        path: The file.
        writable: Whether bytes may be owned; sharing them needs no more than reading.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], *, writable: bool = False):
        self._fd = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
        _open_files.add(self)

    @property
    def path(self) -> str:
        """A path to the very file, also after its name is gone."""
        return f"/proc/self/fd/{self._fd}"

    @property
    def is_open(self) -> bool:
        """Whether it has locks still: until `close`, and not in forked children."""
        return self._fd >= 0

    def identity(self) -> tuple[int, int]:
        """What tells the file from others: device and inode."""
        status = os.fstat(self._fd)
        return status.st_dev, status.st_ino

    def try_share(self, byte: int) -> bool:
        """Lock a byte against owners, unless it has one. Never waits."""
        return self._try_lock(fcntl.F_RDLCK, byte)

    def try_own(self, byte: int) -> bool:
        """Lock a byte against everybody, unless somebody else has a lock on it. Never waits."""
        return self._try_lock(fcntl.F_WRLCK, byte)

    def let_go(self, byte: int) -> None:
        """Unlock a byte."""
        self._call(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, byte)

    def is_locked_elsewhere(self, byte: int) -> bool:
        """Whether somebody else shares or owns a byte."""
        return struct.unpack_from("h", self._call(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, byte))[0] != fcntl.F_UNLCK

    def close(self) -> None:
        """Give all locks back; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self):
        if hasattr(self, "_fd"):  # not where opening failed
            self.close()

    def _try_lock(self, kind: int, byte: int) -> bool:
        try:
            self._call(fcntl.F_OFD_SETLK, kind, byte)
        except OSError as error:
            if error.errno in _REFUSED:
                return False
            raise
        return True

    def _call(self, command: int, kind: int, byte: int) -> bytes:
        return fcntl.fcntl(self._fd, command, struct.pack(_FLOCK, kind, os.SEEK_SET, byte, 1, 0))


_open_files: "weakref.WeakSet[LockFile]" = weakref.WeakSet()


def _close_in_child() -> None:
    # A child that kept them open would hold its parent's locks for as long as it lives.
    for file in list(_open_files):
        file.close()


os.register_at_fork(after_in_child=_close_in_child)
