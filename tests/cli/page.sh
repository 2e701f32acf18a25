#!/bin/sh
# The page of `dfgnn-tune report`: the same bytes
# for the same rows, its main facts without JavaScript, and nothing of a store or
# a command line is taken for markup, neither in the page nor in what its script
# draws.
. "$(dirname "$0")/lib.sh"

# parses FILE: every element is closed as HTML wants it, ids are unique, links
# lead to ids, and nothing is loaded from elsewhere
cat >"$work/parse.py" <<'END'
import html.parser
import json
import re
import sys

VOID = {"meta", "input", "br"}


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
        assert self.open and self.open[-1] == tag, \
            f"</{tag}> at {self.getpos()} while {self.open[-3:]} are open"
        self.open.pop()

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)


def parse(source):
    page = Page()
    page.feed(source)
    page.close()
    assert not page.open, page.open
    return page


source = open(sys.argv[1], encoding="utf-8").read()
page = parse(source)
assert len(re.findall("<script", source)) == 2, "a script too many"
assert not re.search(r"(url\(|@import|https?:)",
                     source.replace("http://www.w3.org/2000/svg", ""))
data = json.loads(re.search('id="data">(.*?)</script>', source, re.S)[1])
assert all(0 <= p["graph"] < len(data["graphs"]) and
           0 <= p["shape"] < len(data["shapes"]) and p["arms"] and
           all(0 <= arm[0] < len(data["names"]) for arm in p["arms"])
           for p in data["problems"])
if len(sys.argv) > 2:  # what the script draws
    drawn = parse(open(sys.argv[2], encoding="utf-8").read())
    # a link to a problem that the list leaves out narrows the list
    ids = page.ids | drawn.ids | {f"p{k}" for k in range(len(data["problems"]))}
    assert drawn.links <= ids, sorted(drawn.links - ids)[:5]
    page.text += drawn.text
print("\n".join(page.text))
END

# draw.js FILE: prints what the page's script makes of its data, the insides of
# all problems and graphs, too
cat >"$work/draw.js" <<'END'
const source = require("fs").readFileSync(process.argv[2], "utf8");
const text = source.match(/id="data">([^]*?)<\/script>/)[1];
const script = source.match(/<script>([^]*)<\/script>/)[1];
new Function("text", script.slice(0, script.indexOf("/* start.js")) + `
  const data = readData(JSON.parse(text));
  console.log(String(h\`<nav>\${renderNav(data)}</nav>\${renderPage(data)}\${
      data.problems.map(p => h\`<div>\${problemBody(data, p)}</div>\`)}\${
      data.graphs.map(g => h\`<div>\${graphBody(data, g)}</div>\`)}\`));
  for (const show of Object.keys(SHOWS))
    mapTable(data, show);
  for (const [low, high] of [[1e-307, 1e15], [1, 1], [1, NaN], [0, Infinity],
                             [-1e300, 1e300], [3, 4]])
    for (const log of [true, false])
      if (ticksOf({low, high, log}).length > 32)
        throw new Error("ticks from " + low + " to " + high);
  for (const order of Object.keys(ORDERS))
    problemList(data, ["a"], order);
`)(text);
END
node=$(command -v node) || {
  node=
  echo "node is missing: what the script draws is not looked at" >&2
}

# look FILE: parses a page and what its script draws; their text is in text
look() {
  if [ -n "$node" ]; then
    "$node" "$work/draw.js" "$1" >"$work/drawn.html" 2>"$work/err" || {
      fail "$(head -n 8 "$work/err")"
      return 0
    }
  fi
  python3 "$work/parse.py" "$1" ${node:+"$work/drawn.html"} >"$work/text" \
    2>"$work/err" || fail "$(tail -n 1 "$work/err")"
}

# drawn WORD...: the text has each word, if it could be drawn
drawn() {
  [ -n "$node" ] || return 0
  for word; do
    grep -q -F -e "$word" "$work/text" || fail "the text lacks '$word'"
  done
}

store=$work/s.db
# shellcheck disable=SC2086
status 0 dfgnn-tune run "$small" --op gt,gat $quick --store "$store" --budget 10s
page=$work/page.html

promise "the page is whole, and says what it is of"
status 0 dfgnn-tune report --store "$store" "$small" -o "$page"
says "page.html has"
look "$page"
drawn 'measured problems' 'Graphs and problems' 'Parameters' \
  'destinations by degree' 'sources by degree' 'The cost of tuning' \
  'Graphs without measurements' 'gt forward 1x8 f32' 'gat forward 1x8 f32' \
  'the largest that a run measured' 'over best' 'cpu.attention.fwd.'

promise "a browser without JavaScript has the main facts"
for word in 'This browser runs no JavaScript' 'map of graphs and problems' \
  '2 problems are measured on 1 graph' 'times</b> as fast as'; do
  grep -q -F "$word" "$page" || fail "the page lacks '$word'"
done

promise "the command of the first sentence runs as it stands"
dfgnn-graph generate uniform:nodes=40,edges=200 -o "$work/pat.npz" -q
for one in "$work/pat.npz --op gt" "$small --op gat --bias"; do
  # shellcheck disable=SC2086
  status 0 dfgnn-tune run $one $quick --store "$work/two.db"
done
status 0 dfgnn-tune report --store "$work/two.db" "$work/pat.npz" "$small" \
  -o "$work/two.html"
next=$(sed -n 's/.*<code>\(dfgnn-tune run [^<]*\)<\/code>.*/\1/p' "$work/two.html" |
  head -n 1)
before=$(dfgnn-tune show --store "$work/two.db" --json | jq length)
# shellcheck disable=SC2086
status 0 $next --budget 1s -q
[ "$(dfgnn-tune show --store "$work/two.db" --json | jq length)" -gt "$before" ] ||
  fail "'$next' measures nothing new"

promise "the same rows give the same bytes"
status 0 dfgnn-tune report --store "$store" "$small" -o "$work/again.html" -q
cmp "$page" "$work/again.html" || fail "two pages differ"
dfgnn-tune report --store "$store" "$small" >"$work/stdout.html" ||
  fail "standard output is refused"
cmp "$page" "$work/stdout.html" || fail "standard output differs"

promise "bandwidth given on the command line gives floors"
status 0 dfgnn-tune report --store "$store" --copy-gbps 20 -o "$work/floor.html"
look "$work/floor.html"
drawn 'floor' 'of the time is the compulsory floor' 'copies at 20.0 GB/s'
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
look "$work/evil.html"
drawn "$evil" "<b>&evil.db"
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
  grep -q "\"$3\":2" "$work/two.html" || fail "$1 against $2 is not $3"
  grep -q '"winners":0' "$work/two.html" || fail "winners changed"
}
altered sharp 1.001 1
altered slow 1.001 1.1
altered blurred 1.2 1.1
compared sharp slow faster
compared slow sharp slower
compared slow slow same
compared blurred sharp ambiguous
compared blurred blurred ambiguous
look "$work/two.html"
drawn 'Against another store' 'time here over there'

promise "times from beyond the world end"
jq -c 'select(.status == "ok") | .median_ms = 1e-9 | .ci_low_ms = 1e-9 |
  .ci_high_ms = 1e-9' "$work/rows.jsonl" >"$work/short.jsonl"
jq -c 'select(.status == "ok") | .median_ms = 1e9 | .ci_low_ms = 1e9 |
  .ci_high_ms = 1e9' "$work/rows.jsonl" >"$work/long.jsonl"
for name in short long; do
  status 0 dfgnn-tune import "$work/$name.jsonl" --store "$work/$name.db" -q
done
status 0 timeout 60 dfgnn-tune report --store "$work/short.db" \
  --against "$work/long.db" -o "$work/two.html" -q
look "$work/two.html"
drawn 'time here over there'

promise "a store without rows has a page, too"
grep -v . "$work/rows.jsonl" >"$work/none.jsonl"
status 0 dfgnn-tune import "$work/none.jsonl" --store "$work/none.db" -q
status 0 dfgnn-tune report --store "$work/none.db" -o "$work/none.html" -q
look "$work/none.html"
grep -q 'Nothing is measured here' "$work/text" || fail "it is not said"

promise "a page of many rows is bounded, and counts what it leaves out"
jq -c 'select(.status == "ok")' "$work/rows.jsonl" | head -n 1 |
  jq -c '. as $row | range(6000) as $k | $row | .graph =
    "graph \($k), of a long name that takes its room" | .fingerprint =
    ($k + 1 | tostring | ("0" * (16 - length)) + .) |
    .heads = $k % 20 + 1 | .median_ms = 1 + $k % 97' >"$work/many.jsonl"
status 0 dfgnn-tune import "$work/many.jsonl" --store "$work/many.db" -q
status 0 dfgnn-tune report --store "$work/many.db" -o "$work/many.html" -q
size=$(wc -c <"$work/many.html")
[ "$size" -lt 8000000 ] || fail "it has $size bytes"
grep -q '"problems":6000' "$work/many.html" || fail "not all are counted"
look "$work/many.html"
drawn 'count in the figures above alone'

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
  status 0 dfgnn-tune report --store "$package" \
    -o "$work/package.html" -q
  took=$(($(date +%s) - began))
  [ "$took" -le "${PAGE_SECONDS:-12}" ] || fail "it took $took s"
  size=$(wc -c <"$work/package.html")
  [ "$size" -gt 500000 ] || fail "it has only $size bytes"
  [ "$size" -lt 2000000 ] || fail "it has $size bytes"
  look "$work/package.html"
  grep -q 'NVIDIA H200' "$work/text" || fail "its device is not named"
  drawn 'of the time is the compulsory floor'
fi

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
  shot narrow 420,1200
  cmp -s "$work/light.png" "$work/dark.png" && fail "dark is as light"
  HOME=$work timeout 120 "$browser" --headless --no-sandbox --disable-gpu \
    --dump-dom "file://$page" 2>/dev/null >"$work/dom.html"
  grep -q '<summary><b>' "$work/dom.html" || fail "the script does not run"
fi
finish
