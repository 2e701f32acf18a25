#!/bin/sh
# A store that cannot be used is named, with the reason, and exits with 5.
. "$(dirname "$0")/lib.sh"

bad() { # STORE PATTERN
  for c in "explain $small --device cpu" "show" "stat" "export"; do
    # shellcheck disable=SC2086
    status 5 dfgnn-tune $c --store "$1"
    says "$2"
  done
}

promise "a directory is no store"
mkdir "$work/d.db"
bad "$work/d.db" "d.db.*directory"

promise "text is no store"
echo "this is not a database, it is a text" >"$work/text.db"
bad "$work/text.db" "text.db"

promise "a truncated store is refused"
# shellcheck disable=SC2086
status 0 dfgnn-tune run "$small" $quick --store "$work/good.db"
head -c 3000 "$work/good.db" >"$work/short.db"
bad "$work/short.db" "short.db"

promise "publishing replaces what was published, and no store that is written to"
cp "$work/good.db" "$work/mine.db"
# shellcheck disable=SC2086
status 0 dfgnn-tune run "$small" $quick --dim 9 --store "$work/mine.db"
status 0 dfgnn-tune export --store "$work/mine.db" -o "$work/mine.jsonl"
for target in mine good; do
  status 1 dfgnn-tune publish "$work/$target.db" --store "$work/good.db"
  says "$target.db: .*not a published tuning store"
done
status 0 dfgnn-tune export --store "$work/mine.db"
cmp -s "$work/out" "$work/mine.jsonl" || fail "the rows are gone"
status 0 dfgnn-tune publish "$work/site.db" --store "$work/mine.db"
status 0 dfgnn-tune publish "$work/site.db" --store "$work/good.db"

promise "a folder that cannot be written is no missing file"
if [ -d /sys/kernel ]; then # where nobody may make a file
  status 5 dfgnn-tune merge /sys/kernel/new.db "$work/good.db"
  says "/sys/kernel/new.db: cannot be created: "
  ! grep -q "No such file" "$work/err" || fail "it tells of a missing file"
fi

promise "an unreadable store is refused"
if [ "$(id -u)" -ne 0 ]; then
  cp "$work/good.db" "$work/closed.db"
  chmod 0 "$work/closed.db"
  bad "$work/closed.db" "closed.db"
fi

if command -v python3 >/dev/null && python3 -c 'import sqlite3' 2>/dev/null; then
  sql() { # FILE STATEMENTS
    python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.executescript(sys.argv[2])
db.commit()' "$1" "$2"
  }
  promise "another application's database is refused"
  sql "$work/app.db" "create table t (x); insert into t values (1);
    pragma application_id = 305419896;"
  bad "$work/app.db" "app.db"

  promise "a store of another version is refused, and left as it is"
  cp "$work/good.db" "$work/newer.db"
  sql "$work/newer.db" "pragma user_version = 9999;"
  cp "$work/newer.db" "$work/before"
  status 5 dfgnn-tune show --store "$work/newer.db" --json
  says "newer.db.*9999"
  # shellcheck disable=SC2086
  status 5 dfgnn-tune run "$small" $quick --dim 9 --store "$work/newer.db"
  says "newer.db.*9999"
  cmp -s "$work/newer.db" "$work/before" || fail "the file is changed"

  promise "a change that another program was cut off in is told of"
  cat "$work/site.db" >"$work/cut.db"
  python3 -c 'import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("pragma cache_size = 1")
db.execute("begin")
for i in range(3000):
    db.execute("insert into ban values (?)", (f"b{i}",))
os.kill(os.getpid(), 9)' "$work/cut.db" 2>/dev/null
  bad "$work/cut.db" "cut.db-journal.*sqlite3"

  promise "a store of a thousand strange bans is told of in few lines"
  cp "$work/good.db" "$work/bans.db"
  sql "$work/bans.db" "with recursive c(x) as (select 1 union all select x + 1
    from c limit 1000) insert into ban select 'b' || x from c;"
  status 0 dfgnn-tune explain "$small" --device cpu --store "$work/bans.db"
  says "bans.db: 992 more"
  [ "$(wc -l <"$work/err")" -lt 20 ] || fail "there are many lines"
fi

promise "a run into a bad store exits with 5 and leaves it as it is"
cp "$work/text.db" "$work/before"
# shellcheck disable=SC2086
status 5 dfgnn-tune run "$small" $quick --store "$work/text.db"
cmp -s "$work/text.db" "$work/before" || fail "the file is changed"

promise "info tells stores, devices and variables"
DFGNN_STORE=$work/good.db
export DFGNN_STORE
status 0 dfgnn-tune info --device cpu --json
holds 'any(.kind == "store" and .rows > 0 and .exists and .writable)'
holds 'any(.kind == "cpu" and .name == "architecture" and .value != "")'
holds 'any(.kind == "environment" and .name == "DFGNN_STORE" and .set)'
holds 'any(.kind == "version" and .name == "dfgnn")'

finish
