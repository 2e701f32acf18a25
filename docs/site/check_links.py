"""Checks the links of a site of static pages.

    check_links.py SITE

Every file and every anchor that a page names has to be there, and no page may load
anything from a network.
"""

import glob
import html
import os
import re
import sys
import urllib.parse

ATTRIBUTE = re.compile(r"<(\w+)[^>]*?\s(href|src)=[\"']?([^\"'\s>]+)")


def read(path):
    with open(path, encoding="utf-8") as file:
        return re.sub(r"(<script[^>]*>)[\s\S]*?</script>", r"\1", file.read())


def main():
    os.chdir(sys.argv[1])
    pages = {path: read(path) for path in glob.glob("**/*.html", recursive=True)}
    anchors = {path: set(re.findall(r"\b(?:id|name)=[\"']?([^\"'\s>]+)", text))
               for path, text in pages.items()}
    wrong, count = [], 0
    for page, text in sorted(pages.items()):
        for tag, _, target in ATTRIBUTE.findall(text):
            count += 1
            path, _, anchor = map(urllib.parse.unquote,
                                  html.unescape(target).partition("#"))
            if re.match(r"[a-z]+:|//", path):
                if tag != "a" and not path.startswith("data:"):
                    wrong.append(f"{page} loads {target}")
                continue
            file = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.isfile(file):
                wrong.append(f"{page}: there is no {target}")
            elif anchor and file in anchors and anchor not in anchors[file]:
                wrong.append(f"{page}: {file} has no anchor {anchor}")
    print("\n".join(wrong + [f"{count} links of {len(pages)} pages, {len(wrong)} wrong"]))
    sys.exit(1 if wrong or not count else 0)


if __name__ == "__main__":
    main()
