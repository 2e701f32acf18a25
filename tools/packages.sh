#!/bin/sh
# tools/packages.sh OUT [wheel] [deb]: makes the packages of the commit that is checked
# out, from a clone of their own, and tests them where nothing of the checkout is.
#
#   OUT/dfgnn-VERSION.tar.gz, SHA256SUMS   as tools/release.sh makes them
#   OUT/pip    the wheel and the source for pip; each is installed into a virtual
#              environment, where the package's tests are run
#   OUT/deb    Debian packages, checked by lintian, installed into OUT/chroot by apt,
#              where packaging/debian/tests are run; needs root, mmdebstrap and autopkgtest
#   OUT/*.log  what the steps said
#
#   PYTHON=FILE         a Python with torch and torch_geometric, whose packages the
#                       environments see (python3)
#   WHEEL=wheel         a wheel for every Linux, by zig (default wheel-here: for
#                       machines like this one)
#   TEST_QUICK=1        fewer of the package's tests
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
[ $# -ge 1 ] || {
  sed -n '2,20s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- wheel deb
python=$(command -v "${PYTHON:-python3}")
version=$(cat "$top/VERSION")

# step NAME COMMAND...: what it says goes to NAME.log
step() {
  log=$out/$1.log
  echo "packages: $1" >&2
  shift
  "$@" >"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    echo "packages: failed: $1; see $log" >&2
    exit 1
  }
}

# environment FOLDER FILE: a virtual environment with the package in FILE
environment() {
  rm -rf "$1"
  "$python" -m venv "$1"
  "$python" -c 'import os, torch
print(os.path.dirname(os.path.dirname(torch.__file__)))' \
    >"$("$1/bin/python" -c 'import site; print(site.getsitepackages()[0])')/torch.pth"
  # pip may have to compile, by the source that it is given
  env -u DFGNN_LIBRARY -u PYTHONPATH "$1/bin/python" -m pip install \
    --disable-pip-version-check --no-deps --force-reinstall "$2"
}

# tried FOLDER: the package of an environment is that of this version, and passes tests
tried() {
  env -u DFGNN_LIBRARY -u PYTHONPATH PATH="$1/bin:$PATH" XDG_DATA_HOME="$out/home" \
    sh -ec 'cd /
version=$1
for tool in tune bench graph; do
  dfgnn-$tool --version | grep -F "$version"
done
python -c "import sys, dfgnn
from dfgnn._library import library
assert dfgnn.version() == dfgnn.__version__ == sys.argv[1], dfgnn.version()
for path in dfgnn.__file__, library()._name:
    assert path.startswith(sys.prefix), path" "$version"
python -m pytest -p no:cacheprovider -q "$2/python/tests"' - "$version" "$out/source"
}

if [ ! -e "$out/source/VERSION" ]; then
  step clone git clone -q --no-hardlinks "$top" "$out/source"
fi
BUILD=$out/build OUT=$out
WHEEL=${WHEEL:-wheel-here}
export BUILD OUT WHEEL
cd "$out/source"
step build "$out/source/tools/release.sh" build

for kind; do
  case $kind in
  wheel)
    for file in "$out"/pip/*.whl "$out"/pip/*.tar.gz; do
      case $file in
      *.whl) name=wheel ;;
      *) name=sdist ;;
      esac
      step "$name-install" environment "$out/venv-$name" "$file"
      step "$name-tests" tried "$out/venv-$name"
    done
    ;;
  deb)
    step deb make -C "$out/build" deb
    mkdir -p "$out/deb"
    cp "$out/build/deb/"*.deb "$out/build/deb/"*.dsc "$out/build/deb/"*.changes \
      "$out/build/deb/"*.tar.* "$out/deb/"
    [ -d "$out/chroot" ] || step chroot mmdebstrap --variant=apt \
      "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$out/chroot"
    step deb-tests autopkgtest -U "$out/deb/"*.deb "$out/source" -- \
      chroot "$out/chroot"
    ;;
  *)
    echo "packages.sh: found '$kind', expected wheel or deb" >&2
    exit 2
    ;;
  esac
done
(cd "$out" && sha256sum dfgnn-*.tar.gz pip/* $([ ! -d deb ] || ls deb/*.deb) \
  >SHA256SUMS && cat SHA256SUMS)
