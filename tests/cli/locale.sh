#!/bin/sh
# A program may use the library in a locale whose decimal point is a comma, which
# a preloaded object sets here, as the commands set none.
. "$(dirname "$0")/lib.sh"

command -v localedef >/dev/null && command -v "${CC:-cc}" >/dev/null &&
  localedef -i de_DE -f UTF-8 "$work/de_DE.UTF-8" 2>/dev/null &&
  printf '%s\n' '#include <locale.h>' \
    '__attribute__((constructor)) static void set(void) {' \
    '  setlocale(LC_ALL, "");' '}' |
  ${CC:-cc} -shared -fPIC -x c - -o "$work/comma.so" 2>/dev/null || {
  echo "localedef, de_DE or a compiler is missing: skipped"
  exit 77
}

# comma COMMAND...: in the locale
comma() {
  LOCPATH=$work LC_ALL=de_DE.UTF-8 LD_PRELOAD=$work/comma.so \
    ASAN_OPTIONS=verify_asan_link_order=0 "$@"
}

promise "the locale has a comma"
comma python3 -c 'import locale, sys
sys.exit(locale.localeconv()["decimal_point"] != ",")' || exit 77

# both COMMAND...: prints the same in both
both() {
  promise "'$*' prints the same with a decimal comma"
  status 0 "$@"
  cp "$work/out" "$work/point"
  status 0 comma "$@"
  diff "$work/point" "$work/out" >&2 || fail "it prints something else"
}

graph="powerlaw:nodes=300,edges=2400,max-degree=90,seed=7"
mtx=$work/real.mtx
printf '%%%%MatrixMarket matrix coordinate real general\n3 3 3\n%s\n' \
  '1 2 0.5
2 3 1.25e-3
3 1 -2.75' >"$mtx"
both dfgnn-graph info "$graph" "$mtx" --json
promise "a graph of real numbers converts to the same bytes"
status 0 dfgnn-graph convert "$mtx" "$work/point.npz"
status 0 comma dfgnn-graph convert "$mtx" "$work/comma.npz"
both dfgnn-graph info "$work/comma.npz" --json

promise "budgets and jobs have points, and stores numbers"
printf -- '%s\n--dim 4\n--budget 0.3s\n' "$graph" >"$work/tune.job"
status 0 comma dfgnn-tune run --job "$work/tune.job" --device cpu --quiet \
  --store "$work/s.db"
status 0 comma dfgnn-tune run "$graph" --device cpu --dim 8 --budget 0.3s \
  --quiet --store "$work/s.db"
both dfgnn-tune export --store "$work/s.db"
both dfgnn-tune show --store "$work/s.db" --json
both dfgnn-tune explain "$graph" --device cpu --dim 8 --store "$work/s.db" \
  --json
both dfgnn-tune explain "$mtx" --device cpu --dim 16 --store "$work/s.db" --json
cp "$work/point" "$work/rows"
promise "rows of one locale are imported in the other"
dfgnn-tune export --store "$work/s.db" >"$work/rows.jsonl"
status 0 comma dfgnn-tune import "$work/rows.jsonl" --store "$work/t.db"
dfgnn-tune export --store "$work/t.db" >"$work/again.jsonl"
cmp "$work/rows.jsonl" "$work/again.jsonl" || fail "rows differ"

promise "an edge program has its numbers"
cat >"$work/gate.txt" <<'TEXT'
dst q[D]; src k[D]
s = sigmoid(0.5 * q + 1.25e-3 * k)
return out = sum_in(s * k - 0.75)
TEXT
status 0 comma dfgnn-bench "$graph" --program "$work/gate.txt" --device cpu \
  --dim 4 --budget 0.2s --json
holds 'all(.error == null)'

finish
