#!/bin/sh
# Input of strangers: files without an end, names with control characters, many
# stores, typing errors.  Nothing hangs or crashes, and errors name their cause.
. "$(dirname "$0")/lib.sh"

# ended N COMMAND...: as status, but a command that hangs is ended and fails
ended() {
  expected=$1
  shift
  status "$expected" timeout -k 5 60 "$@"
}

store=$work/s.db
# shellcheck disable=SC2086
status 0 dfgnn-tune run "$small" $quick --store "$store"

promise "a hundred stores are explained"
many=$store
for i in $(seq 99); do
  cp "$store" "$work/s$i.db"
  many=$many:$work/s$i.db
done
ended 0 env DFGNN_STORE="$many" dfgnn-tune explain "$small" --device cpu \
  --dim 8 --json
holds '.[0].source == "exact" and (.[0].stores | length == 100)'
ended 0 env DFGNN_STORE="$many" dfgnn-tune info --device cpu --json
holds '[.[] | select(.kind == "store")] | length == 100'

promise "files without an end are no graphs"
for name in zero.mtx zero.mtx.gz zero.npz zero.txt; do
  ln -s /dev/zero "$work/$name"
  ended 1 dfgnn-graph info "$work/$name"
  says "$name" "a device" "graph file"
done
mkfifo "$work/pipe.mtx"
ended 1 dfgnn-graph info "$work/pipe.mtx"
says pipe.mtx FIFO "graph file"

promise "a FIFO among the graphs of a folder is passed over by name"
mkdir "$work/graphs"
mkfifo "$work/graphs/a.mtx"
printf '0 1\n1 2\n' >"$work/graphs/b.txt"
ended 0 dfgnn-tune explain "$work/graphs" --device cpu --dim 8 --json
says "a.mtx: found a FIFO"
holds 'length == 1 and .[0].graph == "b"'

promise "a job is a file, or a pipe that the shell made"
mkfifo "$work/tune.job"
ended 1 dfgnn-tune run --job "$work/tune.job" --quiet
says "tune.job: found a FIFO, expected a job file"
ended 1 dfgnn-tune run --job /dev/zero --quiet
says /dev/zero "a device" "job file"
echo "--dim 4,8,16" |
  timeout 60 dfgnn-tune run "$small" --job /dev/stdin --device cpu --dry-run \
    --json >"$work/out" 2>"$work/err" || fail "a job of a pipe is refused"
holds 'length == 3'

promise "what an option reads is a file"
mkfifo "$work/text"
cells="a --op gt --dim 4"
echo "$cells" >"$work/cells.txt"
survey="dfgnn-tune survey $small --device cpu -q"
# shellcheck disable=SC2086
for command in "$survey -o $work/s.csv --cells" \
  "$survey --cells $work/cells.txt -o" \
  "dfgnn-tune run --device cpu --recorded" \
  "dfgnn-graph partition $small 2 $work/parts --by"; do
  ended 1 $command "$work/text"
  says "text: found a FIFO, expected"
  ended 1 $command /dev/zero
  says "/dev/zero: found a device, expected"
done
ended 2 dfgnn-tune explain "$small" --device cpu --program "$work/text"
says "text: found a FIFO, expected a program"
ended 1 dfgnn-tune show --store "$store" "$work/text"
says "nothing is measured of"
mkdir "$work/met"
ln -s "$work/text" "$work/met/a.jsonl"
ended 1 dfgnn-tune run --device cpu --recorded "$work/met"
says "a.jsonl: found a FIFO, expected a recording"

promise "a FIFO is not imported"
mkfifo "$work/rows.jsonl"
ended 1 dfgnn-tune import "$work/rows.jsonl" --store "$store"
says rows.jsonl FIFO "JSON Lines"

promise "a line of JSON that a NUL begins is not passed over"
dfgnn-tune export --store "$store" >"$work/whole.jsonl"
{ printf '\0' && cat "$work/whole.jsonl"; } >"$work/nul.jsonl"
ended 1 dfgnn-tune import "$work/nul.jsonl" --store "$work/nul.db"
says "nul.jsonl:1: found a NUL byte"
ended 0 dfgnn-tune import --skip-invalid "$work/nul.jsonl" \
  --store "$work/nul.db" --json
holds '.[0].added == '$(($(wc -l <"$work/whole.jsonl") - 1))

promise "a full disk is told of by the output's name"
ended 1 dfgnn-tune export --store "$store" -o /dev/full
says "/dev/full: .*No space"
for words in "tune --help" "graph --version" "tune --completion bash" "tune run --help"; do
  ended 1 sh -c "dfgnn-$words >/dev/full"
  says "cannot write standard output"
done

promise "keys and signatures are files"
status 0 dfgnn-tune sign --generate-key "$work/key"
status 0 dfgnn-tune publish "$work/site.db" --store "$store"
mkfifo "$work/site.db.sig"
ended 5 env DFGNN_TRUSTED_KEYS="$work/key.pub" dfgnn-tune explain "$small" \
  --device cpu --dim 8 --store "$work/site.db"
says site.db.sig FIFO signature
mkdir "$work/keys"
mkfifo "$work/keys/a.pub"
ended 1 env DFGNN_TRUSTED_KEYS="$work/keys" dfgnn-tune explain "$small" \
  --device cpu --dim 8 --store "$work/site.db"
says a.pub FIFO key
ended 1 env DFGNN_TRUSTED_KEYS=/dev/zero dfgnn-tune explain "$small" \
  --device cpu --dim 8 --store "$work/site.db"
says /dev/zero "a device" key
mkfifo "$work/pipe.db"
ended 5 env DFGNN_TRUSTED_KEYS="$work/key.pub" dfgnn-tune explain "$small" \
  --device cpu --dim 8 --store "$work/pipe.db"
says pipe.db FIFO store
ended 1 dfgnn-tune sign "$work/site.db" --key "$work/keys/a.pub"
says a.pub FIFO key

promise "a store that is not there is told of"
ended 0 env DFGNN_STORE="$work/typo.db" dfgnn-tune explain "$small" \
  --device cpu --dim 8 --json
says typo.db: "no such store" " [a-z0-9-]*.db$"
mkdir "$work/new"
ended 0 env DFGNN_STORE="$work/new/first.db" dfgnn-tune explain "$small" \
  --device cpu --dim 8 --json
[ ! -s "$work/err" ] || fail "a first store is warned of: $(cat "$work/err")"
ended 0 env DFGNN_STORE="$work/new/first.db" DFGNN_LOG=info dfgnn-tune explain \
  "$small" --device cpu --dim 8 --json
says "first.db: there is no such store"
ended 0 env DFGNN_STORE="$store" dfgnn-tune explain "$small" --device cpu \
  --dim 8 --json
[ ! -s "$work/err" ] || fail "one that is there, too"
# shellcheck disable=SC2086
ended 0 dfgnn-tune run "$small" $quick --store "$work/made.db"
! grep -q "no such store" "$work/err" || fail "one that is being made, too"
ended 1 env DFGNN_STORE="$store:$work/typo.db" dfgnn-tune explain "$small" \
  --device cpu
says "typo.db: there is no such file"

promise "what is no store says what was found"
printf 'SQLite format 3' >"$work/short.db"
ended 5 dfgnn-tune show --store "$work/short.db"
says short.db truncated "15 bytes"
printf 'x' >"$work/short.db"
ended 5 dfgnn-tune show --store "$work/short.db"
says short.db empty

promise "an output follows a link, fills a pipe and replaces nothing else"
echo "my thesis" >"$work/thesis.txt"
ended 0 dfgnn-tune info --device cpu
for out in export publish graph; do
  ln -sf real "$work/link"
  rm -f "$work/real" "$work/fifo.npz"
  mkfifo "$work/fifo.npz"
  case $out in
  export) set -- dfgnn-tune export --store "$store" -o ;;
  publish) set -- dfgnn-tune publish --store "$store" -q ;;
  graph) set -- dfgnn-graph convert "$small" ;;
  esac
  [ $out = graph ] || ended 0 "$@" "$work/link"
  [ -L "$work/link" ] || fail "$out: the link is gone"
  [ $out = graph ] || [ -s "$work/real" ] || fail "$out: no file where it leads"
  wc -c <"$work/fifo.npz" >"$work/count" &
  ended 0 "$@" "$work/fifo.npz"
  wait
  [ -p "$work/fifo.npz" ] || fail "$out: the FIFO is gone"
  [ "$(cat "$work/count")" -gt 100 ] || fail "$out: nothing came through it"
  done
ended 1 dfgnn-tune publish "$work/thesis.txt" --store "$store" -q
says thesis.txt "not a published tuning store"
ended 1 dfgnn-tune compile "$small" --arch sm_90 --dim 8 \
  --pack "$work/thesis.txt" -q
says thesis.txt "not a pack"
ended 1 dfgnn-tune export --store "$store" -o "$work/thesis.txt"
says "not replaced" "'my thesis.'"
ended 1 dfgnn-tune export --store "$store" -o "$store"
says "it begins with 'SQLite format 3"
ended 2 dfgnn-graph convert "$small" "$work/thesis.txt"
says thesis.txt "not a list of edges"
ended 0 env DFGNN_KERNEL_CACHE="$work/thesis.txt" dfgnn-tune info --device cpu
[ "$(cat "$work/thesis.txt")" = "my thesis" ] || fail "the thesis is gone"

promise "control characters of names reach no terminal"
name=$(printf 'a\033c\nb.mtx')
ended 1 dfgnn-graph info "$work/$name"
says 'a\\x1bc\\x0ab.mtx: cannot open'
ended 1 dfgnn-tune run --job "$work/$name"
says 'a\\x1bc\\x0ab.mtx: cannot open'
ended 2 dfgnn-graph "$name"
says 'a\\x1bc\\x0ab.mtx'

promise "threads have a bound"
ended 2 dfgnn-tune explain "$small" --device cpu --threads 1000000
says "'1000000'" "1 to 4096"
ended 0 env OMP_NUM_THREADS=2 dfgnn-tune explain "$small" --device cpu \
  --threads 3 --json

promise "the ends of a range are shown whole"
ended 2 dfgnn-graph generate uniform:seed=-1 -o "$work/x.npz"
says "seed=-1" "0 to 9007199254740991$"

promise "numbers that are none are shown whole"
printf '0.5 1\n' >"$work/half.txt"
ended 1 dfgnn-graph info "$work/half.txt"
says "line 1" "'0.5'" source "whole number"

finish
