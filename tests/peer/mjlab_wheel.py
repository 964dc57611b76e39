"""Unpacks mjlab into `build/peer`, without its dependencies, for `tests/test_interop.py`.

Run: python tests/peer/mjlab_wheel.py
"""

import subprocess
import sys
import zipfile
from pathlib import Path

VERSION = "1.6.0"
CACHE = Path(__file__).resolve().parents[2] / "build" / "peer"
PEER = CACHE / f"mjlab-{VERSION}"


def main() -> None:
    if PEER.is_dir():
        return
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*command, "--dest", str(CACHE), f"mjlab=={VERSION}"], check=True)
    (wheel,) = CACHE.glob(f"mjlab-{VERSION}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(PEER)
    wheel.unlink()


if __name__ == "__main__":
    main()
