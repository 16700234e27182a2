#!/bin/bash
# Other people's readers take our files: Go's pprof package (Debian's golang-github-google-pprof-dev), npm's pprof-format,
# npm's speedscope (its schema, and its importer in Chromium). What is not installed, and cannot be, is skipped and said.
#
# usage: foreign_readers.sh PROFILE_BENCH EXPORT_CLI
set -u
bench=$(realpath "$1") export_cli=$(realpath "$2")
here=$(dirname "$(realpath "$0")")/foreign
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
ran=0 failed=0

skip() { echo "skipped: $*"; }
expect() { # what, expected, got
	ran=$((ran + 1))
	if [ "$2" = "$3" ]; then echo "ok: $1"; else
		echo "FAILED: $1: expected '$2', got '$3'"
		failed=1
	fi
}

"$bench" make "$work" 20000 1 || exit 1
file=$work/0.pb.gz
# 20,000 samples of 1/99 s, in whole ns: what the generator put in.
want=$'samples/count 20000\ncpu/nanoseconds 202020200000'

pprof_package=/usr/share/gocode/src/github.com/google/pprof/profile
if ! command -v go >/dev/null; then
	skip "Go's profile.CheckValid: there is no go command, install golang-go"
elif [ ! -d $pprof_package ]; then
	skip "Go's profile.CheckValid: install golang-github-google-pprof-dev"
else
	mkdir -p "$work/go"
	cp "$here/checkvalid.go" "$work/go/"
	expect "Go's profile.CheckValid" "$want" \
		"$(cd "$work/go" && GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE="$work/cache" GOFLAGS= go run checkvalid.go "$file" 2>&1)"
fi

if ! command -v npm >/dev/null; then
	skip "npm's pprof-format and speedscope: there is no npm"
elif ! (cd "$work" && timeout 120 npm install --silent --no-audit --no-fund --ignore-scripts pprof-format@2 speedscope@1 ajv@8 >npm.log 2>&1); then
	skip "npm's pprof-format and speedscope: npm install failed: $(tail -1 "$work/npm.log")"
else
	cd "$work" || exit 1
	expect "npm's pprof-format" "$want" "$(node "$here/read_pprof.mjs" "$file" 2>&1)"
	"$export_cli" speedscope "$work/a.speedscope.json" "$file" || failed=1
	schema=$(find node_modules/speedscope -name 'file-format-schema*.json' | head -1)
	expect "the schema of npm's speedscope" "${want#*$'\n'}" \
		"$(node "$here/check_speedscope.mjs" "$schema" "$work/a.speedscope.json" 2>&1)"
	# speedscope's page, opened on a file as its command does it: a profile that it has imported names the page
	imported() {
		printf 'speedscope.loadFileFromBase64("%s", "%s")' "$(basename "$1")" "$(base64 -w0 "$1")" >"$work/load.js"
		timeout 240 chromium --headless --no-sandbox --disable-gpu --allow-file-access-from-files --user-data-dir="$work/chromium" \
			--virtual-time-budget=30000 --dump-dom "file://$(dirname "$schema")/index.html#localProfilePath=$work/load.js" \
			2>/dev/null | grep -o '<title>[^<]*'
	}
	if ! command -v chromium >/dev/null; then
		skip "npm's speedscope as it imports: there is no chromium"
	else
		schema=$(realpath "$schema")
		expect "npm's speedscope imports its own format" "<title>cpu - speedscope" "$(imported "$work/a.speedscope.json")"
		expect "and a pprof file" "<title>0.pb.gz - speedscope" "$(imported "$file")"
	fi
fi

[ $failed = 0 ] || exit 1
[ $ran -gt 0 ] || exit 77
