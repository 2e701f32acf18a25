#!/bin/sh
# Published stores are immutable, and may be signed; signatures may be required.
. "$(dirname "$0")/lib.sh"

# shellcheck disable=SC2086
status 0 dfgnn-tune run "$small" $quick --store "$work/base.db"
winner=$(dfgnn-tune show --store "$work/base.db" --json | jq -r '.[0].variant')
status 0 dfgnn-tune pin "$winner" --store "$work/base.db"

promise "a published store has the same rows, no log and no pin"
status 0 dfgnn-tune publish "$work/site.db" --store "$work/base.db"
dfgnn-tune export --store "$work/base.db" >"$work/base.jsonl"
dfgnn-tune export --store "$work/site.db" | cmp -s - "$work/base.jsonl" ||
  fail "the rows differ"
status 0 dfgnn-tune pin --store "$work/site.db" --json
holds 'length == 0'
for f in "$work"/site.db*; do
  [ "$f" = "$work/site.db" ] || fail "$f is left"
done
[ "$(stat -c %a "$work/site.db")" = 444 ] || fail "it is writable"

promise "the same rows give the same bytes"
jq -s -c 'reverse | .[]' "$work/base.jsonl" >"$work/reverse.jsonl"
status 0 dfgnn-tune import "$work/reverse.jsonl" --store "$work/other.db" -q
status 0 dfgnn-tune publish "$work/again.db" --store "$work/other.db"
cmp -s "$work/site.db" "$work/again.db" || fail "the files differ"

promise "publishing replaces a file whole"
status 0 dfgnn-tune publish "$work/site.db" --store "$work/base.db" -q
cmp -s "$work/site.db" "$work/again.db" || fail "the files differ"

promise "a signature is verified, and a changed file is not accepted"
status 0 dfgnn-tune sign --generate-key "$work/site"
[ "$(stat -c %a "$work/site.key")" = 600 ] || fail "the key can be read"
status 1 dfgnn-tune sign --generate-key "$work/site"
status 5 dfgnn-tune verify "$work/site.db" --key "$work/site.pub"
says "not signed"
status 0 dfgnn-tune sign "$work/site.db" --key "$work/site.key"
status 0 dfgnn-tune verify "$work/site.db" --key "$work/site.pub" --json
holds '.[0].signed and .[0].state == "valid"'
status 5 dfgnn-tune sign "$work/base.db" --key "$work/site.key"
says "publish"
status 0 dfgnn-tune sign --generate-key "$work/stranger"
status 5 dfgnn-tune verify "$work/site.db" --key "$work/stranger.pub"
says "signed with a key that is not of"
head -n 1 "$work/base.jsonl" | jq -c '.seed = "00000000000000aa"' \
  >"$work/more.jsonl"
status 0 dfgnn-tune import "$work/more.jsonl" --store "$work/other.db" -q
status 0 dfgnn-tune publish "$work/forged.db" --store "$work/other.db" -q
cp "$work/site.db.sig" "$work/forged.db.sig"
status 5 dfgnn-tune verify "$work/forged.db" --key "$work/site.pub"
says "forged.db: the signature does not fit"

promise "with trusted keys, only stores signed with one of them are read"
explain="dfgnn-tune explain $small --device cpu --dim 8 --json"
mkdir "$work/keys"
cp "$work/site.pub" "$work/stranger.pub" "$work/keys"
DFGNN_TRUSTED_KEYS=$work/site.pub
export DFGNN_TRUSTED_KEYS
status 0 $explain --store "$work/site.db"
holds '.[0].source == "exact"'
status 5 $explain --store "$work/base.db"
status 5 $explain --store "$work/forged.db"
status 0 env DFGNN_TRUSTED_KEYS="$work/keys" $explain --store "$work/site.db"
holds '.[0].source == "exact"'
status 5 env DFGNN_TRUSTED_KEYS="$work/stranger.pub" $explain \
  --store "$work/site.db"
mkdir -p "$XDG_DATA_HOME/dfgnn"
cp "$work/base.db" "$XDG_DATA_HOME/dfgnn/tuning.db"
status 0 $explain
says "store skipped.*tuning.db"
holds '.[0].source != "exact"'
status 1 env DFGNN_TRUSTED_KEYS="$work/absent" $explain
says "DFGNN_TRUSTED_KEYS: .*absent"

promise "one gate for all who read: show, stat, export, merge, diff"
for each in "base.db" "forged.db"; do
  for command in "show --store $work/$each" "stat --store $work/$each" \
    "export --store $work/$each" \
    "merge $work/sum.db $work/$each" "diff $work/site.db $work/$each" \
    "publish $work/new.db --store $work/$each" \
    "doctor $small --store $work/$each"; do
    # shellcheck disable=SC2086
    status 5 dfgnn-tune $command
    grep -q sign "$work/err" "$work/out" || fail "$command does not say why"
  done
done
for command in show stat export; do
  status 0 dfgnn-tune "$command" --store "$work/site.db"
done
status 0 dfgnn-tune export
says tuning.db "not a published store"
[ ! -s "$work/out" ] || fail "rows of an unsigned store are exported"

promise "the variable has to name keys that nobody else can write"
status 1 env DFGNN_TRUSTED_KEYS= $explain
says "DFGNN_TRUSTED_KEYS: found an empty value"
status 1 env DFGNN_TRUSTED_KEYS= dfgnn-tune show
says "DFGNN_TRUSTED_KEYS: found an empty value"
for mode in 777 1777 775; do
  chmod $mode "$work/keys"
  status 1 env DFGNN_TRUSTED_KEYS="$work/keys" $explain
  says DFGNN_TRUSTED_KEYS "write the folder"
done
chmod 755 "$work/keys"
chmod 666 "$work/keys/site.pub"
status 1 env DFGNN_TRUSTED_KEYS="$work/keys" $explain
says DFGNN_TRUSTED_KEYS "nobody else may be able to write"
chmod 644 "$work/keys/site.pub"
unset DFGNN_TRUSTED_KEYS
status 0 dfgnn-tune pin --remove
status 0 $explain
holds '.[0].source == "exact"'

promise "a published store is read where nothing can be written"
mkdir "$work/shelf"
cp "$work/site.db" "$work/shelf"
chmod 555 "$work/shelf"
status 0 dfgnn-tune show --store "$work/shelf/site.db" --json
holds 'length == 1'
[ "$(ls "$work/shelf")" = site.db ] || fail "a file was made"
chmod 755 "$work/shelf"

promise "tuning says what it could not keep"
if [ "$(id -u)" -ne 0 ]; then
  chmod 555 "$work/shelf"
  # shellcheck disable=SC2086
  status 5 dfgnn-tune run "$small" $quick --store "$work/shelf/new.db"
  says "new.db"
  chmod 755 "$work/shelf"
fi

finish
