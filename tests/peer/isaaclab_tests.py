"""Isaac Lab's own tests of its scene_data package, run on its code and then on ours: each has to come out the same.

Isaac Lab is downloaded from the package index into `build/peer`; nothing of it is kept in this repository.
Run: python tests/peer/isaaclab_tests.py
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

VERSION = "3.0.0"
HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / "build" / "peer"
PEER = CACHE / f"isaaclab-{VERSION}"
DEPENDENCIES = CACHE / "dependencies"
TESTS = PEER / "isaaclab" / "source" / "isaaclab" / "test" / "scene_data"


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"], check=True)


def fetch() -> None:
    """Unpack Isaac Lab's wheel without its dependencies, of which its scene_data needs only one that we lack."""
    if not TESTS.is_dir():
        # Its code runs on our Python, whatever its metadata says.
        anywhere = ["--no-deps", "--python-version", "3.12", "--only-binary=:all:"]
        pip("download", f"isaaclab=={VERSION}", *anywhere, "--dest", str(CACHE))
        (wheel,) = CACHE.glob(f"isaaclab-{VERSION}-*.whl")
        with tempfile.TemporaryDirectory(dir=CACHE) as unpacked:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(Path(unpacked, PEER.name))
            Path(unpacked, PEER.name).rename(PEER)
        wheel.unlink()
    if not DEPENDENCIES.is_dir():
        pip("install", "--no-deps", "--target", str(DEPENDENCIES), "lazy_loader")


def run(name: str, *options: str) -> dict[str, str]:
    """Outcome of each test."""
    print(f"--- Isaac Lab {VERSION}'s tests on {name}", flush=True)
    report = CACHE / "report.xml"
    report.unlink(missing_ok=True)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(PEER), str(DEPENDENCIES)])}
    command = [sys.executable, "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", f"--rootdir={PEER}"]
    subprocess.run([*command, f"--junitxml={report}", *options, str(TESTS)], env=environment, cwd=CACHE)
    if not report.exists():
        sys.exit("pytest did not get as far as running the tests.")
    return dict(outcomes(report))


def outcomes(report: Path) -> Iterator[tuple[str, str]]:
    for case in ElementTree.parse(report).iter("testcase"):
        verdicts = {child.tag for child in case} & {"failure", "error", "skipped"}
        yield f"{case.get('classname')}::{case.get('name')}", min(verdicts, default="passed")


def main() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    fetch()
    theirs = run("its own code")
    ours = run("ours", "-p", "as_isaaclab")
    differing = sorted(test for test in theirs.keys() | ours.keys() if theirs.get(test) != ours.get(test))
    for test in differing:
        print(f"{test}: {theirs.get(test)} on its own code, {ours.get(test)} on ours")
    print(f"its own code: {dict(Counter(theirs.values()))}   ours: {dict(Counter(ours.values()))}")
    if differing or "passed" not in theirs.values():
        sys.exit(1)


if __name__ == "__main__":
    main()
