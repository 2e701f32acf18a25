# campaign_state.sh - what is stale of the files that bench/campaign.sh makes; it is sourced
#
# A row is stale if what it measured is no longer what is here: the revision of its
# variant or its code.  Code are files less their comments and white space, with all
# that they include: of a row that names its device code (dfgnn-bench) those, of any
# other what campaign.tsv names for its file.  `told` writes the digest into the row, so
# that a bundle without history can judge as well.  A row without one, which older
# campaigns wrote, is stale if a commit after its own changed what campaign.tsv names.

in_git() { git -C "$top" rev-parse --git-dir >/dev/null 2>&1; }

# bare FILE: prints code less its comments and white space
bare() {
  case $1 in
  *.py | *.sh) sed -e '/^[[:space:]]*#/d' -e '/^[[:space:]]*$/d' "$1" ;;
  *.model) cat "$1" ;;
  *) sed 's|//.*||' "$1" | awk '
    { line = $0
      while (line != "") {
        if (inside) { at = index(line, "*/"); if (!at) break; inside = 0; line = substr(line, at + 2) }
        else { at = index(line, "/*"); if (!at) { printf "%s\n", line; break }
          printf "%s\n", substr(line, 1, at - 1); inside = 1; line = substr(line, at + 2) } } }' |
    tr -d ' \t\n' ;;
  esac
}

# files_of PATH...: prints the files of code that paths, folders or patterns name
files_of() {
  # shellcheck disable=SC2068
  find $@ -type f \( -name '*.c' -o -name '*.h' -o -name '*.cuh' -o -name '*.py' \
    -o -name '*.sh' -o -name '*.model' \) 2>/dev/null | LC_ALL=C sort -u
}

# closure_of FILE...: prints the files, and those that they include
closure_of() {
  printf '%s\n' "$@" >"$work/open"
  : >"$work/closed"
  while [ -s "$work/open" ]; do
    LC_ALL=C sort -u "$work/open" >"$work/found"
    cat "$work/found" >>"$work/closed"
    while read -r one; do
      [ ! -e "$one" ] || sed -n 's/^[[:space:]]*#[[:space:]]*include "\(.*\)".*/\1/p' "$one"
    done <"$work/found" | grep -v -x -F -f "$work/closed" >"$work/open" || true
  done
  LC_ALL=C sort -u "$work/closed"
}

# digest_of files_of|closure_of PATH...: prints the digest of their code, which paths
# below $top name; it is made once in a process
digest_of() {
  digest=$work/digest.$(printf %s "$*" | sha256sum | cut -c 1-32)
  [ -s "$digest" ] || (
    cd "$top" && set +f
    "$@" | while read -r one; do
      kept=$work/bare.$(printf %s "$one" | tr / _)
      [ -s "$kept" ] || [ ! -e "$one" ] || bare "$one" | sha256sum >"$kept"
      [ ! -s "$kept" ] || cat "$kept"
    done | sha256sum | cut -c 1-12 >"$digest"
  )
  cat "$digest"
}

# told FILE CODE PART: adds to each row of a file what says when and of what it was made
told() {
  jq -r '[.. | objects | .code // empty] | unique[]' "$1" >"$work/codes"
  {
    printf '%s\t%s\n' '' "$(digest_of files_of $2)"
    while read -r code; do
      printf '%s\t%s\n' "$code" "$(digest_of closure_of $code)"
    done <"$work/codes"
  } | jq -R 'split("\t") | {(.[0]): .[1]}' | jq -s add >"$work/digest_by_code"
  jq -c --arg commit "$commit" --argjson clocks "$clocks" --arg part "$3" \
    --slurpfile digest "$work/digest_by_code" \
    '[(if type == "array" then .[] else . end)
      | if type == "object" then . + {commit: $commit, digest: $digest[0][.code // ""]}
        + (if $part == "-" then {} else {part: $part} end) + $clocks else . end]' "$1"
}

commits_of() { jq -r '[.[] | objects | .commit // empty] | unique[]' "$1"; }

# kinds_of FILE: a line for each kind of row: how many, commit, digest, code, family and
# revision, "-" where there is none
kinds_of() {
  jq -r '[.[] | objects | [.commit // "-", .digest // "-", .code // "-",
      (if .revision then .variant | split("/")[0] else "-" end), .revision // "-"]]
    | group_by(.)[] | [length] + .[0] | map(tostring) | @tsv' "$1"
}

# revision_of FAMILY: that of this library; "gone" if it has none
revision_of() {
  [ -e "$work/revisions" ] || dfgnn-tune variants --json |
    jq -r 'map("\(.variant | split("/")[0]) \(.revision)") | unique[]' >"$work/revisions"
  awk -v family="$1" '$1 == family { found = $2 } END { print found ? found : "gone" }' \
    "$work/revisions"
}

# fresh COMMIT DIGEST CODE FAMILY REVISION PATHS: is such a row as it would be made now?
fresh() {
  [ "$4" = - ] || [ "$(revision_of "$4")" = "$5" ] || return 1
  if [ "$2" != - ]; then
    [ "$3" = - ] && now=$(digest_of files_of $6) || now=$(digest_of closure_of $3)
    [ "$now" = "$2" ]
  elif [ "${1%"${1#???????}"}" = "${commit%"${commit#???????}"}" ]; then
    return 0
  else # a bundle knows no history
    in_git && later=$(git -C "$top" rev-list --count "$1..HEAD" -- $6 2>/dev/null) &&
      [ "$later" -eq 0 ]
  fi
}

# state_of FILE PATHS PARTS: current, missing, unknown (of which commit), "stale N", by N
# rows, or "partial N" of the parts that the row of campaign.tsv has
state_of() {
  [ -s "$1" ] && kinds_of "$1" >"$work/kinds" 2>/dev/null && [ -s "$work/kinds" ] || {
    echo missing
    return
  }
  stale=0
  while IFS=$tab read -r count of digest code family revision <&4; do
    [ "$of$digest" != -- ] || {
      echo unknown
      return
    }
    fresh "$of" "$digest" "$code" "$family" "$revision" "$2" || stale=$((stale + count))
  done 4<"$work/kinds"
  parts=$(printf '%s\n' "$3" | jq -R --slurpfile rows "$1" '[$rows[0][].part // empty] as $done
    | if $done == [] then 0
      else split(" ") | map(select(IN($done[]))) | length end')
  wanted=$(echo "$3" | wc -w)
  if [ "$stale" -gt 0 ]; then
    echo "stale $stale"
  elif [ "$parts" -gt 0 ] && [ "$parts" -lt "$wanted" ]; then
    echo "partial $parts"
  elif jq -e 'any(.[] | objects; .partial)' "$1" >/dev/null; then
    echo "partial 0"
  else
    echo current
  fi
}
