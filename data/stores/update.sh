#!/bin/sh
# Keeps what decides of stores of measurements, as rows of the package's store:
#
#   update.sh OUT.jsonl.gz [STORE.db...]
#
# Adds the rows of the stores to those of OUT.  Of each problem the BEST (default
# 6) fastest variants stay, and what they were compared with; the host's name
# becomes HOST (default: that of OUT).  Rows of variants and revisions that are
# gone go, if the dfgnn-tune in PATH was built for their backend.
set -eu
case ${1--} in -*)
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac

out=$1
shift
host=${HOST:-$(basename "$out" .jsonl.gz)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

: >"$work/raw.jsonl"
[ ! -e "$out" ] || gzip -dc "$out" >"$work/raw.jsonl"
for store; do
  dfgnn-tune export --store "$store" >>"$work/raw.jsonl"
done
sed 's/"host":"[^"]*"/"host":"'"$host"'"/' "$work/raw.jsonl" >"$work/all.jsonl"
dfgnn-tune import "$work/all.jsonl" --store "$work/all.db" --quiet
dfgnn-tune prune --store "$work/all.db"
dfgnn-tune export --store "$work/all.db" --best "${BEST:-6}" -o "$work/kept.jsonl"
LC_ALL=C sort -o "$work/kept.jsonl" "$work/kept.jsonl"
gzip -9 -n -c "$work/kept.jsonl" >"$out.new"
mv "$out.new" "$out"
dfgnn-tune stat --store "$work/all.db"
