#!/bin/sh
# tests/gpu/sanitize.sh with a scripted compute-sanitizer: each line of its table says
# what ran, and the next run goes on where the time was up.
. "$(dirname "$0")/lib.sh"

fake=$work/fake
mkdir "$fake"
# The sanitizer runs the program; racecheck finds a hazard in one family.
cat >"$fake/sanitizer" <<'EOF'
#!/bin/sh
tool=$2
for program; do :; done
[ "$tool" != initcheck ] || { echo "Error: Device not supported"; exit 1; }
"$program" || exit
case $tool.${DFGNN_TEST_FAMILY-} in
racecheck.cuda.spmm.*.split) echo "Error: Race reported"; exit 99 ;;
esac
echo "========= ERROR SUMMARY: 0 errors"
EOF
# A program for each state: one that checks only without DFGNN_TEST_QUICK, one that
# never ends, one that fails, one that has nothing to check.
printf '#!/bin/sh\n[ -n "${DFGNN_TEST_QUICK-}" ] && echo "gt: 0 checks" || %s\n' \
  'echo "gt: 3 checks"' >"$fake/check_gpu_variants"
printf '#!/bin/sh\nexec sleep 30\n' >"$fake/check_gpu_sort"
printf '#!/bin/sh\necho wrong; exit 1\n' >"$fake/check_gpu_tiles"
printf '#!/bin/sh\necho "gt: 0 checks"\n' >"$fake/check_gpu_edges"
chmod +x "$fake"/*
run() {
  env COMPUTE_SANITIZER="$fake/sanitizer" TABLE="$work/table" LIMIT=5 JOBS=8 \
    "$@" sh "$top/tests/gpu/sanitize.sh" "$fake"
}
# state TOOL PROGRAM FAMILY: what the table says of it
state() {
  awk -F '\t' -v t="$1" -v p="check_gpu_$2" -v f="$3" \
    '$2 == t && $3 == p && $4 == f { print $5 }' "$work/table"
}
is() {
  expected=$1
  shift
  [ "$(state "$@")" = "$expected" ] ||
    fail "$*: found '$(state "$@")', expected '$expected'"
}

promise "without time everything is named that never ran"
status 2 run BUDGET=0 COMMIT=a
is never racecheck sort -
is never memcheck variants cuda.attention.fwd.pmf

promise "each line says how its run ended"
status 1 run COMMIT=a TOOLS=racecheck
is ended racecheck sort -
is failed racecheck tiles -
is ok racecheck variants cuda.attention.fwd.pmf
is nothing racecheck edges cuda.attention.fwd.pmf
hazards=$(awk -F '\t' '$5 == "hazards" { print $4 }' "$work/table" | sort -u)
[ "$(echo $hazards)" = "cuda.spmm.bwd.split cuda.spmm.fwd.split" ] ||
  fail "hazards in '$hazards'"
[ -s "$work/table.racecheck.check_gpu_tiles.-.log" ] || fail "no log is kept"

promise "what has run is not run again, but at another commit"
lines=$(wc -l <"$work/table")
status 1 run COMMIT=a TOOLS=racecheck
[ "$(wc -l <"$work/table")" -eq "$lines" ] || fail "lines were added"
status 0 run COMMIT=b TOOLS=initcheck
is unsupported initcheck variants cuda.attention.fwd.pmf

promise "a machine without the sanitizer is told what is missing"
status 77 run COMPUTE_SANITIZER="$fake/none"
says "expected dfgnn-tune (TUNE) and compute-sanitizer"

finish
