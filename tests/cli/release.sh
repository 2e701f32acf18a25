#!/bin/sh
# tools/release.sh names what is not ready; the workflows that a tag starts, and the
# scripts that they call, are well formed.
. "$(dirname "$0")/lib.sh"

command -v git >/dev/null || exit 77
build=$(cd "${top_builddir:-.}" && pwd)
tree=$work/tree
mkdir -p "$tree/tools" "$tree/packaging/debian" "$tree/python/dfgnn" \
  "$tree/packaging/spack/dfgnn" "$tree/tests/abi" "$tree/include"
cp "$top/tools/release.sh" "$tree/tools/"
cp "$top/tests/abi/snapshot.sh" "$tree/tests/abi/"
cp "$top"/include/dfgnn*.h "$tree/include/"
cd "$tree" || exit 1
git init -q . && git config user.name x && git config user.email x@invalid

put_release() { # VERSION
  echo "$1" >VERSION
  printf '# Changelog\n\n## [%s] - 2026-01-02\n\n- x\n' "$1" >CHANGELOG.md
  printf 'dfgnn (%s-1) unstable; urgency=medium\n' "$1" >packaging/debian/changelog
  printf 'version: %s\ndate-released: 2026-01-02\n' "$1" >CITATION.cff
  printf '__version__ = "%s"\n' "$1" >python/dfgnn/__init__.py
  printf '    version("%s")\n' "$1" >packaging/spack/dfgnn/package.py
  echo 'AC_SUBST([DFGNN_SOVERSION], [3:1:2])' >configure.ac
  printf 'Package: libdfgnn1\n' >packaging/debian/control
  : >packaging/debian/libdfgnn1.install
  echo 'links libdfgnn.so.1' >README.md
  tools/release.sh freeze
  git add -A && git commit -q -m "$1"
}

promise "a release that is ready is checked and tagged"
put_release 1.2.3
status 0 tools/release.sh check
status 0 tools/release.sh tag
[ "$(git rev-parse 'v1.2.3^{commit}')" = "$(git rev-parse HEAD)" ] ||
  fail "the tag is not here"
status 0 tools/release.sh check

promise "what is not ready is named, and nothing is built or tagged"
echo 1.2.4 >VERSION
for action in check build tag; do
  status 1 tools/release.sh $action
  says "CHANGELOG.md: found the first release 1.2.3, expected 1.2.4"
  says "packaging/debian/changelog: found the version 1.2.3, expected 1.2.4"
  says "CITATION.cff: found version 1.2.3, expected 1.2.4"
  says "__init__.py: found __version__ 1.2.3, expected 1.2.4"
  says "package.py: found the first version 1.2.3, expected 1.2.4"
  says "changes that are not committed"
done
[ "$(git tag)" = v1.2.3 ] || fail "a tag was made"
[ -z "$(find . -name 'release-*')" ] || fail "something was built"
put_release 1.2.4
sed -i 's/ - 2026-01-02//' CHANGELOG.md
sed -i /date-released/d CITATION.cff
status 1 tools/release.sh check
says "expected a date: '## .1.2.4. - YYYY-MM-DD'"
git checkout -q .
sed -i 's/2026-01-02/2026-01-03/' CITATION.cff
status 1 tools/release.sh check
says "found date-released: 2026-01-03, expected 2026-01-02 as CHANGELOG.md says"
git checkout -q .
sed -i 's/3:1:2/3:1:1/' configure.ac
status 1 tools/release.sh versions
says "found libdfgnn1, expected libdfgnn2 as DFGNN_SOVERSION 3:1:1"
says "README.md: found libdfgnn.so.1, expected libdfgnn.so.2"
says "found no libdfgnn2.install"
git checkout -q .
sed -i 's/dfgnn_graph_bytes/dfgnn_graph_size/' include/dfgnn.h include/dfgnn_graph.h
status 1 tools/release.sh check
says "released.h: found none, or one that is not of 1.2.4"
git checkout -q .
git rm -q tests/abi/released.h
status 1 tools/release.sh check
says "released.h: found none, or one that is not of 1.2.4"
git checkout -q HEAD .
echo 1.2 >VERSION
status 1 tools/release.sh check
says "expected MAJOR.MINOR.PATCH"
git checkout -q .
git tag v1.2.4 HEAD~1
status 1 tools/release.sh check
says "the tag v1.2.4 is at"
status 2 tools/release.sh publish
says "found 'publish', expected freeze, check, build, tag or versions"
cd "$top" || exit 1

promise "the files of this tree agree on the version, and the tools say it"
status 0 tools/release.sh versions
for tool in tune bench graph; do
  status 0 dfgnn-$tool --version
  prints "$(cat VERSION)"
done
for file in dfgnn.pc dfgnn-config-version.cmake; do
  grep -q "$(cat VERSION)" "$build/$file" ||
    fail "$file: found no $(cat VERSION)"
done

promise "scripts and workflows are well formed"
for script in tools/*.sh packaging/build/*.sh python/*.sh tests/emulator/*.sh; do
  case $script in packaging/build/ltmain.sh) continue ;; esac
  sh -n "$script" || fail "$script does not parse"
done
for script in quickstart setup check; do
  status 2 "tools/$script.sh" --help
  says "tools/$script.sh\|Builds\|builds"
done
if command -v shellcheck >/dev/null; then
  shellcheck -S warning tools/release.sh tools/quickstart.sh tools/setup.sh \
    packaging/build/manylinux.sh packaging/build/static-libs.sh \
    >"$work/shellcheck" || fail "shellcheck: $(cat "$work/shellcheck")"
fi
for file in .github/workflows/*.yml; do
  # what they run is there
  for script in $(grep -o 'tools/[a-z]*\.sh' "$file" | sort -u); do
    [ -x "$script" ] || fail "$file runs $script, which is not there"
  done
  for target in $(sed -n 's/.*make -C build [^#]*\<\(check-[a-z]*\|wheel\)\>.*/\1/p' \
    "$file"); do
    grep -Eq "^$target:" tests/tests.am python/python.am ||
      fail "$file makes $target, which no .am has"
  done
  if python3 -c 'import yaml' 2>/dev/null; then
    python3 -c 'import sys, yaml
jobs = yaml.safe_load(open(sys.argv[1]))["jobs"]
for job in jobs.values():
    assert job["runs-on"] and all("run" in s or "uses" in s for s in job["steps"])
    needs = job.get("needs", [])
    assert set([needs] if isinstance(needs, str) else needs) <= set(jobs)' "$file" ||
      fail "$file is no workflow"
  fi
done

finish
