#!/bin/sh
# tools/release.sh [freeze | check | build | tag | versions]: makes a release of the
# version in VERSION
#
#   versions  compares VERSION with CHANGELOG.md, packaging/debian/changelog, CITATION.cff, __version__ of
#          the PyTorch package and Spack's recipe, and the soname with Debian's packages
#          and the documents, and names what differs, and what lacks the headers
#   freeze writes tests/abi/released.h, the public headers of this release, for later
#          ones to be compared with; commit it
#   check  the same as versions, and whether tests/abi has the headers of the release, the tree is
#          committed and a tag is where it should be
#   build  checks, then makes the tarball, the source for pip and the wheel in OUT,
#          with their sums; nothing leaves this machine (the default)
#   tag    checks, makes the tag, and says how to push it: the workflows of
#          .github/workflows then build, test and publish
#
#   OUT=DIR    where the files come (default release-VERSION in the checkout)
#   BUILD=DIR  a build of make to take, or where to make one (default OUT/build)
#   WHEEL=wheel-here  a wheel for machines like this one, in place of manylinux
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top"
what=${1:-build}
version=$(cat VERSION)
tag=v$version
faults=0

fault() {
  echo "release: $*" >&2
  faults=$((faults + 1))
}

# expect FILE FOUND WHAT: what FILE says is the version
expect() {
  [ "$2" = "$version" ] ||
    fault "$1: found $3 ${2:-none}, expected $version as VERSION says"
}

versions() {
  echo "$version" | grep -Eqx '[0-9]+\.[0-9]+\.[0-9]+' ||
    fault "VERSION: found '$version', expected MAJOR.MINOR.PATCH"
  news=$(grep -E -m 1 '^## \[[0-9]' CHANGELOG.md || :)
  expect CHANGELOG.md "$(echo "$news" | sed 's/## \[\(.*\)\].*/\1/')" 'the first release'
  date=$(echo "$news" | sed -n 's/.* - \([0-9]\{4\}-[0-9][0-9]-[0-9][0-9]\)$/\1/p')
  [ -n "$date" ] ||
    fault "CHANGELOG.md: found '$news', expected a date: '## [$version] - YYYY-MM-DD'"
  changelog=$(sed -n '1s/^[^(]*(\(.*\)).*/\1/p' packaging/debian/changelog)
  expect packaging/debian/changelog "${changelog%-*}" 'the version'
  expect CITATION.cff "$(sed -n 's/^version: *//p' CITATION.cff)" 'version'
  expect python/dfgnn/__init__.py "$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' \
    python/dfgnn/__init__.py)" '__version__'
  expect packaging/spack/dfgnn/package.py "$(sed -n \
    's/^ *version("\([^"]*\)".*/\1/p' packaging/spack/dfgnn/package.py | head -n 1)" \
    'the first version'
  released=$(sed -n 's/^date-released: *//p' CITATION.cff)
  [ "$released" = "$date" ] ||
    fault "CITATION.cff: found date-released: $released, expected $date as CHANGELOG.md says"
  soname
  headers
}

# Whether all that copies the PyTorch package copies the headers that it reads.
headers() {
  for file in packaging/debian/rules packaging/apptainer/dfgnn.def packaging/conda/meta.yaml \
    packaging/spack/dfgnn/package.py; do
    ! grep -q python/dfgnn $file || grep -q 'include.*dfgnn\|"include"' $file ||
      fault "$file: found python/dfgnn, expected include beside it"
  done
}

# The soname is current - age of libtool's current:revision:age.
soname() {
  triple=$(sed -n 's/.*DFGNN_SOVERSION\], \[\([0-9:]*\)\].*/\1/p' configure.ac)
  number=$((${triple%%:*} - ${triple##*:}))
  packages=$(sed -n 's/^Package: libdfgnn\([0-9]*\)$/\1/p' packaging/debian/control)
  [ "$packages" = "$number" ] || fault "packaging/debian/control: found libdfgnn$packages," \
    "expected libdfgnn$number as DFGNN_SOVERSION $triple of configure.ac says"
  [ -e "packaging/debian/libdfgnn$number.install" ] ||
    fault "debian: found no libdfgnn$number.install"
  for file in README.md CHANGELOG.md packaging/debian/changelog; do
    other=$(grep -o 'libdfgnn\.so\.[0-9]*' $file | sort -u |
      grep -vx "libdfgnn.so.$number" | head -n 1)
    [ -z "$other" ] || fault "$file: found $other, expected libdfgnn.so.$number"
  done
}

# Whether tests/abi has the public headers as they are released.
abi() {
  tests/abi/snapshot.sh | cmp -s - tests/abi/released.h ||
    fault "tests/abi/released.h: found none, or one that is not of $version and" \
      "include/; tools/release.sh freeze writes it"
}

check() {
  versions
  abi
  changed=$(git status --porcelain --untracked-files=no | head -n 3)
  [ -z "$changed" ] || fault "changes that are not committed: $changed"
  if at=$(git rev-parse -q --verify "refs/tags/$tag^{commit}"); then
    [ "$at" = "$(git rev-parse HEAD)" ] ||
      fault "the tag $tag is at $at, expected none, or the commit that is here"
  fi
}

build() {
  out=${OUT:-$top/release-$version}
  mkdir -p "$out"
  out=$(cd "$out" && pwd)
  folder=${BUILD:-$out/build}
  if [ ! -e "$folder/Makefile" ]; then
    [ -e configure ] || ./autogen.sh
    mkdir -p "$folder"
    (cd "$folder" && "$top/configure" -q)
  fi
  echo "release: the tarball" >&2
  make -C "$folder" -s dist
  cp "$folder/dfgnn-$version.tar.gz" "$out/"
  echo "release: the source for pip" >&2
  mkdir -p "$out/pip"
  python3 -c 'import sys; sys.path.insert(0, "python")
import build_backend; print(build_backend.build_sdist(sys.argv[1]))' "$out/pip"
  echo "release: the wheel" >&2
  make -C "$folder" -s "${WHEEL:-wheel}" DIST="$out/pip"
  (cd "$out" && sha256sum dfgnn-* pip/dfgnn-* | tee SHA256SUMS)
  # The recipe of a conda-forge feedstock takes the tarball of the tag.
  sum=$(sed -n "s/  dfgnn-$version\.tar\.gz$//p" "$out/SHA256SUMS")
  home=${DFGNN_HOME_PAGE:-https://github.com/OWNER/dfgnn}
  sed -e "s|^  - path: ../..$|  - url: $home/releases/download/$tag/dfgnn-$version.tar.gz\\
    sha256: $sum|" -e "s|^{% set version = .*|{% set version = \"$version\" %}|" \
    packaging/conda/meta.yaml >"$out/meta.yaml"
}

case $what in
check | build | tag) check ;;
versions) versions ;;
freeze)
  tests/abi/snapshot.sh >tests/abi/released.h
  exit
  ;;
*)
  echo "release: found '$what', expected freeze, check, build, tag or versions" >&2
  exit 2
  ;;
esac
if [ "$faults" -ne 0 ] && { [ "$what" != build ] || [ -z "${ANYWAY-}" ]; }; then
  echo "release: $faults faults; ANYWAY=1 tools/release.sh build tries the build" >&2
  exit 1
fi
case $what in
check) echo "release: $version can be released" ;;
versions) echo "release: every file says $version" ;;
build) build ;;
tag)
  git rev-parse -q --verify "refs/tags/$tag" >/dev/null ||
    git tag -a "$tag" -m "dfgnn $version"
  echo "release: git push origin $tag publishes $version"
  ;;
esac
