#!/bin/sh
# bundle.sh DIR SRCDIR PROGRAM...: completes a bundle whose programs are linked:
# adds shared objects, data and tests, checks that nothing else is needed, and
# packs DIR.tar.gz.
set -eu

dir=$1 src=$2
shift 2
system='linux-vdso|ld-linux-[a-z0-9_-]*|libc|libm|libpthread|libdl|librt'

# 1. what the system might not have lies beside
for program in "$@" lib/libdfgnn_bundle.so; do
  LD_LIBRARY_PATH= ldd "$dir/$program"
done | awk '$2 == "=>" { print $1, $3 }' | sort -u |
  grep -Ev "^($system)\.so" | grep -v '^libdfgnn_bundle' |
  while read -r name path; do
    [ -e "$path" ] || { echo "bundle: $name: $path" >&2; exit 1; }
    cp -L "$path" "$dir/lib/$name.new"
    mv "$dir/lib/$name.new" "$dir/lib/$name"
  done

# 2. nothing else is needed
find "$dir" -type f \( -perm -u+x -o -name '*.so*' \) | while read -r file; do
  readelf -d "$file" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    while read -r name; do
      [ -e "$dir/lib/$name" ] || echo "$name" | grep -Eq "^($system)\.so" || {
        echo "bundle: $file needs $name, which a bare machine may lack" >&2
        exit 1
      }
    done
done

# 3. data and tests, laid out as in the source tree
for part in data tests/cli tests/data tools/bench python docs include kernels \
  packaging/plugins; do
  [ -d "$src/$part" ] || continue
  mkdir -p "$dir/$part"
  cp -RL "$src/$part/." "$dir/$part/"
done
if [ -d "$dir/tests/gpu" ]; then
  cp "$src/tests/gpu/run_all.sh" "$dir/tests/gpu/"
fi
find "$dir/python" -name __pycache__ -prune -exec rm -rf {} +
[ ! -e data/stores/kernels.pack ] || cp data/stores/kernels.pack "$dir"
cp "$src/VERSION" "$src/README.md" "$dir/"
git -C "$src" describe --always --dirty --abbrev=12 --exclude '*' \
  >"$dir/COMMIT" 2>/dev/null || rm -f "$dir/COMMIT"
cp "$src/packaging/build/bundle-run.txt" "$dir/RUN.txt"
cp "$src/packaging/build/bundle-tests.sh" "$dir/run-tests.sh"
chmod -R u+w "$dir"
find "$dir" -name '*.am' -exec rm -f {} +

tar -czf "$dir.tar.gz" "$dir"
echo "$(du -h "$dir.tar.gz" | cut -f1)  $dir.tar.gz"
