"""Makes a wheel for pip: the module `sheaf`, libsheaf.so and the command, with the libraries they need.

    wheel.py SOURCE_ROOT BUILD_ROOT OUT

A wheel is a zip archive with a list of its files; Python's own library makes it. What is no part of glibc lies beside
libsheaf.so under a name with a part of its hash, so that it is not taken for a library that another module has loaded,
and is found by $ORIGIN (patchelf). The tag is checked: nothing may need a symbol of glibc later than it says. Equal
inputs give equal bytes; times are SOURCE_DATE_EPOCH's, else 1980.

Left out are the modules of the transport mpi, which belong to the MPI of a machine.
"""

import base64
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

GLIBC = (2, 34)
# Of glibc, which every machine has that the tag is for.
OF_GLIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"}
OF_GLIBC |= {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
# The machines that wheels are for, as ELF numbers them (e_machine).
MACHINES = {62: "x86_64", 183: "aarch64"}


def said(*command):
    """The output of a command that must succeed."""
    try:
        return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        sys.exit(f"wheel.py: {command[0]} is missing; Debian has it in binutils, libc-bin, patchelf or dpkg")
    except subprocess.CalledProcessError as error:
        sys.exit(f"wheel.py: {' '.join(error.cmd)}: {error.stderr.strip()}")


def machine_of(library):
    """The machine that it was built for, perhaps by a cross compiler."""
    number = int.from_bytes(library.read_bytes()[18:20], "little")
    return MACHINES.get(number) or sys.exit(f"wheel.py: {library} is for machine {number} of ELF, not {MACHINES}")


def tag_of(machine):
    return f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"


def tool(name, machine):
    """A program of binutils that reads files of that machine."""
    return name if machine == platform.machine() else f"{machine}-linux-gnu-{name}"


def libraries_of(program, machine):
    """Name and path of each library that a program loads, those of libraries too: Debian's, of that machine."""
    found, wanted = {}, needed(program)
    while wanted:
        name = wanted.pop()
        if name in OF_GLIBC or name in found:
            continue
        places = [Path(folder, f"{machine}-linux-gnu", name) for folder in ("/usr/lib", "/lib")]
        found[name] = next((place for place in places if place.exists()), None)
        if found[name] is None:
            sys.exit(f"wheel.py: {program} needs {name}, which is neither {places[0]} nor {places[1]}")
        wanted += needed(found[name])
    return found


def needed(file):
    return said("patchelf", "--print-needed", file).split()


def check_glibc(file, machine):
    """No symbol of a later glibc than the tag's."""
    wanted = set(re.findall(r"\bGLIBC_(\d+)\.(\d+)", said(tool("objdump", machine), "-T", file)))
    latest = max(((int(major), int(minor)) for major, minor in wanted), default=(0, 0))
    if latest > GLIBC:
        sys.exit(f"wheel.py: {file.name} needs glibc {latest[0]}.{latest[1]}: not {tag_of(machine)}")


def packages_of(paths):
    """The packages of libraries; one question, as the answer to each reads the lists of all packages."""
    lines = said("dpkg-query", "-S", *(f"*/{path.resolve().name}" for path in paths)).splitlines()
    first = {line.rpartition("/")[2]: line.partition(":")[0] for line in reversed(lines)}
    return {first[path.resolve().name] for path in paths}


def fill_native(native, licences, build, machine):
    """Command, library, kernels of GPUs where they were built, and what they need."""
    programs = []
    for source, name in (
        (build / "libsheaf.so.0", "libsheaf.so.0"),
        (build / "src/cli/sheaf", "sheaf"),
        (build / "src/cli/sheaf-cuda.so", "sheaf-cuda.so"),
    ):
        if source.exists():
            said(tool("strip", machine), "-o", native / name, source.resolve())
            programs.append(native / name)
        elif name != "sheaf-cuda.so":
            sys.exit(f"wheel.py: {source} is not there; ./run build makes it")
    bundled = {}
    for program in programs:
        bundled.update(libraries_of(program, machine))
    renamed = {}
    for name, path in sorted(bundled.items()):
        stem, _, end = name.partition(".so")
        renamed[name] = f"{stem}-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}.so{end}"
        shutil.copyfile(path, native / renamed[name])
    for package in packages_of(bundled.values()):
        shutil.copyfile(Path("/usr/share/doc") / package / "copyright", licences / f"{package}.txt")
    for file in sorted(native.iterdir()):
        replaced = [word for old in needed(file) if old in renamed for word in ("--replace-needed", old, renamed[old])]
        soname = ["--set-soname", file.name] if file.name in renamed.values() else []
        if replaced or soname:
            said("patchelf", *replaced, *soname, file)
        said("patchelf", "--set-rpath", "$ORIGIN", file)  # with names in one call it undoes them
        check_glibc(file, machine)
        file.chmod(0o755)
    for file in native.iterdir():
        for name in needed(file):
            if name not in OF_GLIBC and not (native / name).exists():
                sys.exit(f"wheel.py: {file.name} needs {name}, which is not in the wheel")


def metadata(version, root):
    return f"""Metadata-Version: 2.1
Name: sheaf
Version: {version}
Summary: Fine-tunes, stores, merges and runs language models, with the same bytes on any number of devices
License: Apache-2.0
Requires-Python: >=3.9
Classifier: Typing :: Typed
Classifier: Operating System :: POSIX :: Linux
Description-Content-Type: text/markdown

{(root / "docs/python.md").read_text()}"""


def write_zip(wheel, folder, record):
    """The files of `folder`, sorted, with their hashes in `record`, which comes last."""
    when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), 315532800))[:6]
    lines = []

    def add(archive, name, data, mode):
        entry = zipfile.ZipInfo(name, when)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.create_system = 3
        entry.external_attr = (0o100000 | mode) << 16
        archive.writestr(entry, data)

    with zipfile.ZipFile(wheel, "w") as archive:
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            data, name = file.read_bytes(), file.relative_to(folder).as_posix()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}\n")
            add(archive, name, data, 0o755 if os.access(file, os.X_OK) and file.parent.name == "native" else 0o644)
        add(archive, record, "".join([*lines, f"{record},,\n"]).encode(), 0o644)


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: wheel.py SOURCE_ROOT BUILD_ROOT OUT")
    root, build, out = (Path(word).resolve() for word in sys.argv[1:])
    machine = machine_of(build / "libsheaf.so.0")
    tag = tag_of(machine)
    version = json.loads(said("meson", "introspect", "--projectinfo", build))["version"]
    info_name = f"sheaf-{version}.dist-info"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        package, info = folder / "sheaf", folder / info_name
        shutil.copytree(root / "python/sheaf", package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(root / "include/sheaf", package / "include")  # of which the module reads the structs
        (package / "native").mkdir()
        (info / "licenses").mkdir(parents=True)
        fill_native(package / "native", info / "licenses", build, machine)
        shutil.copytree(root / "recipes", package / "share/sheaf/recipes")
        shutil.copyfile(root / "LICENSE", info / "licenses/LICENSE")
        (info / "METADATA").write_text(metadata(version, root))
        (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: sheaf\nRoot-Is-Purelib: false\nTag: {tag}\n")
        (info / "entry_points.txt").write_text("[console_scripts]\nsheaf = sheaf.__main__:main\n")
        out.mkdir(parents=True, exist_ok=True)
        wheel = out / f"sheaf-{version}-{tag}.whl"
        write_zip(wheel, folder, f"{info_name}/RECORD")
    print(wheel)


if __name__ == "__main__":
    main()
