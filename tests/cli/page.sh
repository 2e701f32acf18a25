#!/bin/sh
# The page of `dfgnn-tune report` and of `dfgnn-bench --report`: the same bytes
# for the same rows, readable without JavaScript, and nothing of a store or a
# command line is taken for markup.
. "$(dirname "$0")/lib.sh"

# parses FILE: every element is closed as HTML wants it, ids are unique, links
# lead to ids, and nothing is loaded from elsewhere
cat >"$work/parse.py" <<'END'
import html.parser
import re
import sys

VOID = {"meta", "input", "br"}
# ends of these may be left out (HTML, 13.1.2.4)
OPTIONAL = {"td", "th", "tr", "tbody", "thead", "li", "p"}
SELF = {"path", "rect"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.text = [], set(), set(), []
        self.kinds = set()

    def handle_starttag(self, tag, attributes):
        self.kinds.add(tag)
        for name, value in attributes:
            assert not name.startswith("on"), f"<{tag} {name}>"
            assert name != "src", f"<{tag} src={value}>"
            if name == "id":
                assert value not in self.ids, f"two of id {value}"
                self.ids.add(value)
            if name == "href":
                assert value.startswith("#"), f"a link to {value}"
                self.links.add(value[1:])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        while self.open and self.open[-1] != tag and self.open[-1] in OPTIONAL:
            self.open.pop()
        assert self.open and self.open[-1] == tag, \
            f"</{tag}> at {self.getpos()} while {self.open[-3:]} are open"
        self.open.pop()

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)


page = Page()
source = open(sys.argv[1], encoding="utf-8").read()
page.feed(source)
page.close()
assert not page.open, page.open
assert page.links <= page.ids, sorted(page.links - page.ids)[:5]
assert len(re.findall("<script", source)) == 1, "a script too many"
assert not re.search(r"(url\(|@import|https?:)",
                     source.replace("http://www.w3.org/2000/svg", ""))
print("\n".join(page.text))
END

store=$work/s.db
# shellcheck disable=SC2086
status 0 dfgnn-tune run "$small" --op gt,gat $quick --store "$store"
page=$work/page.html

promise "the page is whole, and says what it is of"
status 0 dfgnn-tune report --store "$store" "$small" -o "$page"
says "page.html has"
python3 "$work/parse.py" "$page" >"$work/text" 2>"$work/err" ||
  fail "$(tail -n 1 "$work/err")"
for word in 'measured problems' 'Graphs and problems' 'Parameters' \
  'destinations by degree' 'sources by degree' 'The cost of tuning' \
  'Graphs without measurements' 'gt forward 1x8 f32' 'gat forward 1x8 f32' \
  'its copy bandwidth is not known' 'over best' 'cpu.attention.fwd.'; do
  grep -q -F "$word" "$work/text" || fail "the text lacks '$word'"
done

promise "the same rows give the same bytes"
status 0 dfgnn-tune report --store "$store" "$small" -o "$work/again.html" -q
cmp "$page" "$work/again.html" || fail "two pages differ"
dfgnn-tune report --store "$store" "$small" >"$work/stdout.html" ||
  fail "standard output is refused"
cmp "$page" "$work/stdout.html" || fail "standard output differs"
LC_ALL=de_DE.UTF-8 dfgnn-tune report --store "$store" "$small" \
  >"$work/german.html"
cmp "$page" "$work/german.html" || fail "another locale differs"

promise "bandwidth given on the command line gives floors"
status 0 dfgnn-tune report --store "$store" --copy-gbps 20 -o "$work/floor.html"
grep -q '% floor' "$work/floor.html" || fail "there are no floors"
status 2 dfgnn-tune report --store "$store" --copy-gbps fast
says "found 'fast', expected GB/s above zero"

promise "what strangers wrote is text"
evil='<script>alert(1)</script>"&'"'"'<img src=x onerror=alert(1)>'
dfgnn-tune export --store "$store" -o "$work/rows.jsonl" -q
jq -c --arg evil "$evil" '.graph = $evil | .family = $evil | .model = $evil |
  .driver = $evil | .reason = $evil | .host = $evil |
  if .variant | test("unroll=1") then .status = "failed" else . end' \
  "$work/rows.jsonl" >"$work/evil.jsonl"
status 0 dfgnn-tune import "$work/evil.jsonl" --store "$work/<b>&evil.db" -q
status 0 dfgnn-tune report --store "$work/<b>&evil.db" \
  --against "$work/<b>&evil.db" -o "$work/evil.html" -q
python3 "$work/parse.py" "$work/evil.html" >"$work/text" 2>"$work/err" ||
  fail "$(tail -n 1 "$work/err")"
grep -q -F "$evil" "$work/text" || fail "the name is not in the text"
grep -q -F "<b>&evil.db" "$work/text" || fail "the store's name is not"
grep -q -F "alert(1)" "$work/evil.html" || fail "nothing was tested"

promise "two stores are compared by their intervals"
altered() { # NAME WIDTH FACTOR: a store of the same rows with such intervals
  jq -c "select(.status == \"ok\") | .median_ms *= $3 |
    .ci_low_ms = .median_ms / $2 | .ci_high_ms = .median_ms * $2" \
    "$work/rows.jsonl" >"$work/$1.jsonl"
  status 0 dfgnn-tune import "$work/$1.jsonl" --store "$work/$1.db" -q
}
compared() { # HERE THERE VERDICT
  status 0 dfgnn-tune report --store "$work/$1.db" --against "$work/$2.db" \
    -o "$work/two.html" -q
  grep -q "<b>2</b><span>$3" "$work/two.html" ||
    fail "$1 against $2 is not $3"
  grep -q '<b>0</b><span>winners changed' "$work/two.html" ||
    fail "winners changed"
}
altered sharp 1.001 1
altered slow 1.001 1.1
altered blurred 1.2 1.1
compared sharp slow faster
compared slow sharp slower
compared slow slow same
compared blurred sharp ambiguous
compared blurred blurred ambiguous

promise "a store without rows has a page, too"
grep -v . "$work/rows.jsonl" >"$work/none.jsonl"
status 0 dfgnn-tune import "$work/none.jsonl" --store "$work/none.db" -q
status 0 dfgnn-tune report --store "$work/none.db" -o "$work/none.html" -q
python3 "$work/parse.py" "$work/none.html" >"$work/text" 2>"$work/err" ||
  fail "$(tail -n 1 "$work/err")"
grep -q 'Nothing is measured here' "$work/text" || fail "it is not said"

promise "what cannot be read or written is named, and nothing is left"
status 1 dfgnn-tune report --store "$work/absent.db" -o "$work/no.html"
says "absent.db: there is no such file"
status 1 dfgnn-tune report --store "$store" --against "$work/other.db" \
  -o "$work/no.html"
says "other.db: there is no such file"
printf 'no store' >"$work/text.db"
status 5 dfgnn-tune report --store "$work/text.db" -o "$work/no.html"
says "text.db"
status 1 dfgnn-tune report "$work/absent.mtx" --store "$store" \
  -o "$work/no.html"
says "absent.mtx"
status 1 dfgnn-tune report --store "$store" -o "$work/absent/page.html"
says "absent/page.html: cannot write"
[ ! -e "$work/no.html" ] || fail "a page was written"
[ -z "$(find "$work" -name '*.html.*')" ] || fail "a temporary file is left"

promise "the package's store has a page of less than 2 MB in 2 s"
package=$(find . -path '*data/stores/tuning.db' 2>/dev/null | head -n 1)
if [ -n "$package" ]; then
  began=$(date +%s)
  status 0 env -u DFGNN_MODEL dfgnn-tune report --store "$package" \
    -o "$work/package.html" -q
  took=$(($(date +%s) - began))
  [ "$took" -le "${PAGE_SECONDS:-12}" ] || fail "it took $took s"
  size=$(wc -c <"$work/package.html")
  [ "$size" -gt 500000 ] || fail "it has only $size bytes"
  [ "$size" -lt 2000000 ] || fail "it has $size bytes"
  python3 "$work/parse.py" "$work/package.html" >"$work/text" 2>"$work/err" ||
    fail "$(tail -n 1 "$work/err")"
  grep -q 'NVIDIA H200' "$work/text" || fail "its device is not named"
  grep -q '% floor' "$work/text" || fail "it has no floors"
fi

promise "a benchmark has such a page"
status 0 dfgnn-bench "$small" --device cpu --dim 8 --rounds 3 --variants all \
  --store "$store" --report "$work/bench.html" --quiet
python3 "$work/parse.py" "$work/bench.html" >"$work/text" 2>"$work/err" ||
  fail "$(tail -n 1 "$work/err")"
for word in preparing 'a run of dfgnn-bench' '% floor'; do
  grep -q "$word" "$work/text" || fail "its page lacks '$word'"
done
status 2 dfgnn-bench "$small" --device cpu --dispatch --report "$work/b.html"
says "report shows times of variants"

promise "a browser draws it in light, dark and narrow"
browser=
for name in chromium chromium-browser google-chrome; do
  [ -n "$browser" ] || browser=$(command -v "$name") || browser=
done
if [ -z "$browser" ]; then
  echo "chromium is missing: screenshots skipped" >&2
else
  shot() { # NAME SIZE [OPTION]
    HOME=$work timeout 120 "$browser" --headless --no-sandbox --disable-gpu \
      --hide-scrollbars --window-size="$2" ${3:+"$3"} \
      --screenshot="$work/$1.png" "file://$page" >/dev/null 2>&1
    [ "$(wc -c <"$work/$1.png" 2>/dev/null || echo 0)" -gt 20000 ] ||
      fail "$1: there is no picture"
  }
  shot light 1300,1600
  shot dark 1300,1600 --force-dark-mode
  shot narrow 500,1200
  cmp -s "$work/light.png" "$work/dark.png" && fail "dark is as light"
  HOME=$work timeout 120 "$browser" --headless --no-sandbox --disable-gpu \
    --dump-dom "file://$page" 2>/dev/null >"$work/dom.html"
  grep -q 'filter problems' "$work/dom.html" || fail "the script does not run"
fi
finish
