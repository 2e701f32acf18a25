#!/bin/sh
# check_wheel.sh WHEEL TORCH...: checks a wheel as a user meets it.
#
# The wheel's library may ask for no symbol that is newer than the glibc of the
# wheel's tag.  For each version of torch the wheel is installed into a virtual
# environment of its own, which holds nothing of the checkout, and the package's
# tests are run there.
#
#   VENVS=DIR     folder of the environments (default: beside the wheel)
#   PYTEST_FLAGS  flags of pytest (default -q); TEST_QUICK=1 runs fewer tests
set -eu

wheel=$(realpath "$1")
tests=$(realpath "$(dirname "$0")/tests")
shift
venvs=${VENVS:-$(dirname "$wheel")/venvs}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m zipfile -e "$wheel" "$work/wheel"
tag=$(basename "$wheel" | sed -n 's/.*manylinux_\([0-9]*\)_\([0-9]*\)_.*/\1.\2/p')
newest=$(objdump -T "$work"/wheel/dfgnn/lib/*.so* |
  sed -n 's/.*(\{0,1\}GLIBC_\([0-9.]*\)).*/\1/p' | sort -uV | tail -n 1)
size=$(du -k "$wheel" | cut -f 1)
echo "$(basename "$wheel"): $size KiB, symbols of glibc $newest and older"
[ -n "$newest" ] || {
  echo 'check_wheel: libdfgnn.so.0 has no symbol of a version of glibc' >&2
  exit 1
}
[ "$(printf '%s\n' "$newest" "$tag" | sort -V | tail -n 1)" = "$tag" ] || {
  echo "check_wheel: libdfgnn.so.0 needs glibc $newest, its tag says $tag" >&2
  exit 1
}
[ "$size" -le 12288 ] || {
  echo "check_wheel: the wheel has $size KiB, expected at most 12288" >&2
  exit 1
}

unset DFGNN_LIBRARY PYTHONPATH
PYTHONDONTWRITEBYTECODE=1 XDG_DATA_HOME=$work/home XDG_CACHE_HOME=$work/home
export PYTHONDONTWRITEBYTECODE XDG_DATA_HOME XDG_CACHE_HOME
cd "$work"
for torch; do
  venv=$venvs/torch-$torch
  if [ ! -e "$venv/complete" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check --no-cache-dir \
      "torch==$torch" torch_geometric numpy scipy pytest
    touch "$venv/complete"
  fi
  "$venv/bin/python" -m pip install -q --disable-pip-version-check \
    --force-reinstall --no-deps "$wheel"
  "$venv/bin/python" -c 'if True:
    import sys, torch, dfgnn
    from dfgnn._library import library
    for path in dfgnn.__file__, library()._name:
        assert path.startswith(sys.prefix), path
    print("torch", torch.__version__, "dfgnn", dfgnn.version(), library()._name)'
  "$venv/bin/python" -m pytest -p no:cacheprovider ${PYTEST_FLAGS--q} "$tests"
done
