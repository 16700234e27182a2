#!/bin/bash
# The flame graph's page in a browser, headless Chromium: it draws, searches, zooms, inverts and compares, and its
# script fails nowhere. The address says what to show, the document is read afterwards.
#
# usage: flamegraph_page.sh PROFILE_BENCH EXPORT_CLI
set -u
bench=$(realpath "$1") export_cli=$(realpath "$2")
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -z "$chromium" ]; then
	echo "skipped: there is no Chromium, install chromium"
	exit 77
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

"$bench" make "$work" 3000 2 && "$export_cli" flamegraph "$work/one.html" "$work/0.pb.gz" &&
	"$export_cli" flamegraph "$work/two.html" "$work/1.pb.gz" "$work/0.pb.gz" &&
	"$export_cli" folded "$work/one.folded" "$work/0.pb.gz" || exit 1

page() { # file, address
	timeout 100 "$chromium" --headless --no-sandbox --disable-gpu --disable-background-networking --disable-dev-shm-usage \
		--user-data-dir="$work/browser" --enable-logging=stderr --v=0 --window-size=1200,800 \
		--virtual-time-budget=5000 --dump-dom "file://$work/$1#$2" 2>"$work/log"
	if grep -E "CONSOLE.*(Error|Uncaught)" "$work/log"; then
		echo "FAILED: the script failed at $1#$2"
		failed=1
	fi
}
need() { # what, text, pattern
	if grep -qE "$3" <<<"$2"; then echo "ok: $1"; else
		echo "FAILED: $1: no '$3' in the page"
		failed=1
	fi
}

# What a search should find, from the folded stacks: the share of those that have the text in a frame.
word=flush
share=$(awk -v word=$word '{ n = $NF; all += n; sub(/ [0-9]+$/, ""); sub(/^[^;]*;/, ""); if (index($0, word)) hit += n }
	END { printf "%.2f", 100 * hit / all }' "$work/one.folded")
need "a search finds the share that the folded stacks have" "$(page one.html "q=$word")" "matched ${share/./\\.} %"
need "the callers' view is pressed" "$(page one.html 'view=callers&colour=object')" 'data-view="callers"[^>]*aria-pressed="true"'
need "zooming by the address works" "$(page one.html 'view=icicle&zoom=0.0.0')" 'data-view="icicle"[^>]*aria-pressed="true"'
need "the legend tells the kinds" "$(page one.html '')" 'inlined</span>'
need "a comparison says so" "$(page two.html '')" 'more than before'
exit $failed
