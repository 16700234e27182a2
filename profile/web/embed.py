#!/usr/bin/env python3
"""Makes one page of an HTML file, its style and its script, as C arrays split where the data goes.

usage: embed.py PAGE.html STYLE.css SCRIPT.js OUT.c

The page names its parts by the comments <!--style-->, <!--script--> and <!--data-->.
"""
import sys


def c_array(name, text):
    data = text.encode()
    lines = [f"const char {name}[] = {{"]
    for i in range(0, len(data), 20):
        lines.append("\t" + " ".join(f"{b if b < 128 else b - 256}," for b in data[i:i + 20]))
    lines.append("\t0,\n};")
    lines.append(f"const size_t {name}_size = sizeof({name}) - 1;\n")
    return "\n".join(lines)


def main():
    page, style, script, out = sys.argv[1:]
    html, css, js = (open(path, encoding="utf-8").read() for path in (page, style, script))
    for part, text in (("<!--style-->", css), ("<!--script-->", js)):
        if html.count(part) != 1:
            sys.exit(f"{page}: {part} must be there once")
        if "</style" in text or "</script" in text:
            sys.exit(f"{page}: a part ends its own element")
        html = html.replace(part, "\n" + text)
    head, data, tail = html.partition("<!--data-->")
    if not data:
        sys.exit(f"{page}: there is no <!--data-->")
    with open(out, "w", encoding="utf-8") as f:
        f.write('#include "profile/web.h"\n\n')
        f.write(c_array("web_flamegraph_head", head))
        f.write(c_array("web_flamegraph_tail", tail))


main()
