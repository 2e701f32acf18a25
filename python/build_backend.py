"""What pip calls (PEP 517): builds libdfgnn by configure and make.

    pip install .                                 a clone or an unpacked tarball
    pip install git+https://HOST/dfgnn.git
    pip install . --config-settings build=DIR     with or into a build in DIR

A tree that was configured in place is built there, any other in build-wheel.
pip -v shows what make does.  The packages of tools/packages.txt are needed.
"""

import os
import subprocess
import sys
import tarfile
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _run(command, folder):
    print("dfgnn:", *command, flush=True)
    try:
        subprocess.run(command, cwd=folder, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(
            f"dfgnn: {error}\ndfgnn: tools/setup.sh installs what a build "
            "needs on Debian and Ubuntu; pip -v shows all of the output")


def _configured(settings):
    """The folder of a build, configured."""
    build = (settings or {}).get("build")
    if not build:
        in_place = os.path.exists(os.path.join(TOP, "config.status"))
        build = TOP if in_place else os.path.join(TOP, "build-wheel")
    build = os.path.abspath(build)
    if os.path.exists(os.path.join(build, "Makefile")):
        return build
    if not os.path.exists(os.path.join(TOP, "configure")):
        _run([os.path.join(TOP, "autogen.sh")], TOP)
    os.makedirs(build, exist_ok=True)
    _run([os.path.join(TOP, "configure"), "--disable-static"], build)
    return build


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Writes the metadata without a build, which takes minutes."""
    from make_wheel import metadata
    name = f"dfgnn-{_version()}.dist-info"
    folder = os.path.join(metadata_directory, name)
    os.makedirs(folder)
    with open(os.path.join(folder, "METADATA"), "w", encoding="utf-8") as file:
        file.write(metadata(_version()))
    return name


def build_wheel(wheel_directory, config_settings=None,
                metadata_directory=None):
    build = _configured(config_settings)
    with tempfile.TemporaryDirectory(dir=wheel_directory) as made:
        _run(["make", f"-j{os.cpu_count() or 2}", "wheel-here",
              f"DIST={made}", f"PYTHON={sys.executable}"], build)
        name, = os.listdir(made)
        os.replace(os.path.join(made, name),
                   os.path.join(wheel_directory, name))
    return name


def _version():
    with open(os.path.join(TOP, "VERSION"), encoding="utf-8") as file:
        return file.read().strip()


def _sources():
    """The files of a clone that git knows, or all of an unpacked tarball."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if not listed.returncode and listed.stdout:
        return [name for name in listed.stdout.split("\0")
                if os.path.isfile(os.path.join(TOP, name))]
    found = []
    for folder, folders, names in os.walk(TOP):
        folders[:] = [name for name in folders if name != "build-wheel"]
        found += [os.path.relpath(os.path.join(folder, name), TOP)
                  for name in names]
    return found


def build_sdist(sdist_directory, config_settings=None):
    stem = f"dfgnn-{_version()}"
    name = stem + ".tar.gz"
    with tarfile.open(os.path.join(sdist_directory, name), "w:gz",
                      format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(_sources()):
            archive.add(os.path.join(TOP, path), f"{stem}/{path}")
        with tempfile.TemporaryDirectory() as folder:
            from make_wheel import metadata
            info = os.path.join(folder, "PKG-INFO")
            with open(info, "w", encoding="utf-8") as file:
                file.write(metadata(_version()))
            archive.add(info, f"{stem}/PKG-INFO")
    return name
