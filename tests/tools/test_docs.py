"""Documents and program say the same: options in --help, man pages and completion; keys of the configuration in the
daemon, the shipped file and profd.conf(5); causes of losses and names of metrics; links; commands that documents show.
--help fits a screen; man pages are sound."""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

PROFCTL, PROFD = os.environ["PROFCTL"], os.environ["PROFD"]
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCREEN = 24, 80
failures = 0


def check(condition, what):
    global failures
    if not condition:
        print(f"FAILED: {what}")
        failures += 1


def same(a, b, what):
    check(a == b, f"{what}: only in the first {sorted(a - b)}, only in the second {sorted(b - a)}")


def read(*path):
    with open(os.path.join(TOP, *path), encoding="utf-8") as f:
        return f.read()


def help_of(*command):
    return subprocess.run([PROFCTL, *command, "--help"], capture_output=True, text=True, check=True).stdout


def options_of(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


def man_options(page):
    """Those that have an entry of their own: lines that begin with one."""
    entries = [line for line in page.splitlines() if line.startswith("*-")]
    return {o for line in entries for o in re.findall(r"\*(--[a-z][a-z-]+)\*", line)}


def fits(text, what):
    lines = text.splitlines()
    check(len(lines) <= SCREEN[0] and max(map(len, lines)) <= SCREEN[1], f"{what} fits {SCREEN}")


def check_options():
    verbs = re.findall(r"^  ([a-z]+) +\S", help_of(), re.M)
    check(len(verbs) > 10, f"commands are found: {verbs}")
    shared = man_options(read("docs", "man", "profctl.1.scd"))
    completion = read("packaging", "completions", "profctl")
    variables = dict(re.findall(r'local (\w+)="([^"]*)"', completion))
    own = dict(re.findall(r'^\t(\w+)\) own="([^"]*)" ;;', completion, re.M))
    same(set(verbs) | {"help", "version"}, set(variables["verbs"].split()), "commands in --help and in the completion")
    fits(help_of(), "profctl --help")
    for verb in verbs:
        text = help_of(verb)
        lines = text.splitlines()
        fits(text, f"profctl {verb} --help")
        # What the text says about other commands' options is no option of this one.
        said = options_of("\n".join(line for line in lines if line.startswith(("  ", "Source", "When", "What")))) - {"--help"}
        page = read("docs", "man", f"profctl-{verb}.1.scd")
        same(said - shared, man_options(page) - shared, f"options of {verb} in --help and in its man page")
        completed = own[verb]
        for _ in range(3):
            completed = re.sub(r"\$(\w+)", lambda m: variables[m.group(1)], completed)
        same(said, options_of(completed) - {"--help"}, f"options of {verb} in --help and in the completion")
    text = subprocess.run([PROFD, "--help"], capture_output=True, text=True, check=True).stdout
    fits(text, "profd --help")
    same(options_of(text) - {"--help", "--version"}, man_options(read("docs", "man", "profd.8.scd")),
         "options of profd in --help and in its man page")


def check_man_pages():
    """As mandoc and groff see them. scdoc writes paragraph marks that are not needed; mandoc says so of each."""
    if not shutil.which("scdoc"):
        print("skipped: man pages need scdoc")
        return
    pages = sorted(name for name in os.listdir(os.path.join(TOP, "docs", "man")) if name.endswith(".scd"))
    wanted = set(re.findall(r"'([\w.-]+\.[158])'", read("docs", "meson.build")))
    same({name[:-4] for name in pages}, wanted, "man pages that there are and that are installed")
    with tempfile.TemporaryDirectory() as directory:
        for name in pages:
            source = read("docs", "man", name)
            sections = re.findall(r"^# (.*)$", source, re.M)
            for section in "NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO":
                check(section in sections, f"{name} has a section {section}")
            if name.startswith("profctl-"):
                check("EXAMPLES" in sections, f"{name} has examples")
            path = os.path.join(directory, name[:-4])
            with open(path, "w", encoding="utf-8") as f:
                subprocess.run(["scdoc"], input=source, stdout=f, text=True, check=True)
            for checker in ["mandoc", "-Tlint", "-Wwarning"], ["groff", "-man", "-Kutf8", "-Tutf8", "-wall", "-z"]:
                if not shutil.which(checker[0]):
                    print(f"skipped: {name} is not looked at by {checker[0]}, which is missing")
                    continue
                r = subprocess.run([*checker, path], capture_output=True, text=True, check=False)
                said = [line for line in (r.stdout + r.stderr).splitlines() if "skipping paragraph macro" not in line]
                check(not said, f"{checker[0]} finds nothing in {name}: {said}")


def shown_commands():
    """(where, command) of the documents' blocks and the examples of man pages."""
    pages = ["README.md"] + [os.path.join("docs", n) for n in sorted(os.listdir(os.path.join(TOP, "docs"))) if n.endswith(".md")]
    for page in pages:
        for line in re.findall(r"^    (?:# |\$ )?(profc?tl?d? .*)$", read(page), re.M):
            yield page, line
        for line in re.findall(r"`(profctl [a-z]+[^`]*)`", read(page)):
            yield page, line
    for name in sorted(os.listdir(os.path.join(TOP, "docs", "man"))):
        examples = read("docs", "man", name).partition("# EXAMPLES")[2]
        for line in re.findall(r"^\*(profctl .*)\*$", examples, re.M):
            yield name, line.replace("\\", "")


def check_shown_commands():
    """With --help behind them all that comes before is parsed, and nothing is done."""
    count = 0
    for where, line in shown_commands():
        if "..." in line:
            continue
        words = shlex.split(line.split(" | ")[0], comments=True)
        for end in ">", ">>", "&&", ";", "&", "--":
            if end in words:
                words = words[:words.index(end)]
        r = subprocess.run([PROFCTL if words[0] == "profctl" else PROFD, *words[1:], "--help"], capture_output=True, text=True,
                           check=False)
        check(r.returncode == 0 and r.stdout, f"{where} shows a command that there is: {line}: {r.stderr}")
        count += 1
    check(count > 40, f"{count} commands are found")


COMPLETE = """
. /usr/share/bash-completion/bash_completion
. "$1"
compopt() { :; }
COMP_LINE=$2 COMP_POINT=${#2}
shift 2
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_profctl
printf '%s\n' "${COMPREPLY[@]}"
"""


def complete(line, directory):
    """What bash offers at the end of `line`. It cuts words at = too, as readline does."""
    words = [w for w in re.split(r"\s+|(=)", line) if w]
    if line[-1] in " =":
        words += [""]
    out = subprocess.run(["bash", "-c", COMPLETE, "bash", os.path.join(TOP, "packaging", "completions", "profctl"), line, *words],
                         capture_output=True, text=True, check=True, cwd=directory).stdout
    return [w.strip() for w in out.split("\n") if w]


def check_completion():
    if not os.path.exists("/usr/share/bash-completion/bash_completion"):
        print("skipped: completion needs the package bash-completion")
        return
    with tempfile.TemporaryDirectory() as directory:
        os.mkdir(os.path.join(directory, "fdir"))
        with open(os.path.join(directory, "f1.pb.gz"), "w", encoding="utf-8"):
            pass
        files = ["f1.pb.gz", "fdir"]
        for line, wanted in (
                ("profctl re", ["record", "report"]), ("profctl --v", ["--version"]), ("profctl help fl", ["flamegraph"]),
                ("profctl report --c", ["--callers", "--callees", "--ca", "--cert", "--comm", "--container"]),
                ("profctl report f", files), ("profctl list f", files), ("profctl changes f", files),
                ("profctl report --socket f", files), ("profctl report --socket=f", files), ("profctl dump -o f", files),
                ("profctl dump --format p", ["pprof", "perf-script"]), ("profctl dump --format=p", ["pprof", "perf-script"]),
                ("profctl report --sort unit,sy", ["unit,symbol"]), ("profctl report --since y", ["yesterday"]),
                ("profctl top --by u", ["unit", "user"]), ("profctl diff --by s", ["stack"]), ("profctl top -d ", []),
                ("profctl push -s f", ["fdir"]), ("profctl debuginfod -s f", []), ("profctl report --user roo", ["root"]),
                ("profctl record --o", ["--output"]), ("profctl record -- ls f", files),
                ("profctl record --output=x ls f", files), ("profctl record -F 99 l" + "s" * 9, []), ("profctl status f", [])):
            got = complete(line, directory)
            check(sorted(got) == sorted(wanted), f"'{line}' completes to {wanted}: {got}")
        check("ls" in complete("profctl record l", directory), "record completes commands")


def check_configuration():
    source = re.search(r"\} keys\[\] = \{(.*?)\n\};", read("daemon", "config.c"), re.S).group(1)
    keys = {(s, k) for s, k in re.findall(r'\{"(\w+)",\s*"(\w+)"', source)}
    check(len(keys) > 15, f"{len(keys)} keys are found")
    for name, pattern in (("profd.conf", r"^#(\w+)="), ("profd.conf(5)", r"_(\w+)=_(?=[,\n])")):
        text = read("packaging", "profd.conf") if name == "profd.conf" else \
            read("docs", "man", "profd.conf.5.scd").split("# EXAMPLE")[0]
        found = set()
        for section, body in re.findall(r"^(?:# )?\[(\w+)\]\n(.*?)(?=^(?:# )?\[|\Z)", text, re.S | re.M):
            entries = body if name == "profd.conf" else "\n".join(
                line for line in body.splitlines() if line.startswith("_")) + "\n"
            found |= {(section, key) for key in re.findall(pattern, entries, re.M)}
        same(keys, found, f"keys of the daemon and of {name}")


def check_losses_and_metrics():
    operations = read("docs", "operations.md")
    table = operations[operations.index("## When something is missing"):]
    causes = set(re.findall(r'^ +\{"(\w+)",', re.search(r"losses\[COUNTERS_LOSSES\] = \{(.*?)\n        \};",
                                                        read("daemon", "counters.c"), re.S).group(1), re.M))
    check(len(causes) >= 8, f"causes are found: {causes}")
    for cause in causes:
        check(f"| `{cause}` |" in table, f"operations.md explains the loss {cause}")
    status = read("daemon", "status.c")
    metrics = {f"profd_{m}" for m in re.findall(r'metric(?:_head)?\(out, "(\w+)"', status)}
    for directory, _, names in os.walk(os.path.join(TOP, "docs")):
        for name in names:
            if name.endswith((".md", ".scd")):
                text = read(directory, name)
                for metric in re.findall(r"\bprofd_[a-z_]+(?=[\[{)` ])", text):
                    check(metric in metrics, f"{name} speaks of a metric that there is: {metric}")


def check_api():
    page = read("docs", "api.md")
    paths = set(re.findall(r'\{"(/[\w/]+)",', read("daemon", "api_http.c"))) | {"/api/v1/windows/ID"}
    check(len(paths) > 6, f"paths are found: {paths}")
    same(paths, set(re.findall(r"^\| `(/[^`]+)` \|", page, re.M)), "paths of the daemon and of api.md")
    known = re.search(r"\} known\[\] = \{(.*?)\n\};", read("daemon", "api_query.c"), re.S).group(1)
    parameters = set(re.findall(r'\{"(\w+)", ON_', known))
    selection = read("profile", "selection.c")
    parameters |= set(re.findall(r'\{"(\w+)", +&s->', selection)) | set(re.findall(r'!strcmp\(name, "(\w+)"\)', selection))
    table = page[page.index("## Parameters"):page.index("## Answers")]
    documented = {name for cell in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", table, re.M) for name in re.findall(r"\w+", cell)}
    same(parameters, documented, "parameters of the daemon and of api.md")


def check_sources():
    """Files of the source that documents name are there, and the parts use only those that architecture.md says."""
    pages = {n: read("docs", n) for n in os.listdir(os.path.join(TOP, "docs")) if n.endswith(".md")}
    pages["README.md"] = read("README.md")
    del pages["comparison.md"]  # names files of others
    parts = "base bpf symbolizer profile daemon tools tests bench packaging scripts docs".split()
    count = 0
    for name, page in pages.items():
        for path in re.findall(rf"`((?:{'|'.join(parts)})/[\w./-]*)(?=[` ])", page):
            there = os.path.exists(os.path.join(TOP, path))
            built = path.startswith(("tests/", "bench/")) and os.path.exists(os.path.join(TOP, path + ".c"))
            check(there or built, f"{name} names a file that there is: {path}")
            count += 1
    check(count > 40, f"{count} names of files are found")
    rows = re.findall(r"^\| `(\w+)/` \| .* \| (.*) \|$", pages["architecture.md"], re.M)
    check(len(rows) == 6, f"the parts are found: {rows}")
    for part, uses in rows:
        allowed = {part} | (set(parts[:4]) if "all of the above" in uses else set(re.findall(r"`(\w+)", uses)))
        for directory, _, names in os.walk(os.path.join(TOP, part)):
            for name in names:
                if name.endswith((".c", ".h")):
                    used = set(re.findall(rf'^#include "({"|".join(parts[:6])})/', read(directory, name), re.M))
                    check(used <= allowed, f"{part}/{name} uses what architecture.md says: {used - allowed}")


def check_links():
    pages = [os.path.join(TOP, "README.md"), os.path.join(TOP, "bench", "README.md")]
    pages += [os.path.join(TOP, "docs", name) for name in os.listdir(os.path.join(TOP, "docs")) if name.endswith(".md")]
    for page in pages:
        for link in re.findall(r"\]\(([^)\s]+)\)", read(page)):
            if "://" in link:
                continue
            path, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            check(os.path.exists(target), f"{os.path.basename(page)}: there is {link}")
            if anchor and os.path.isfile(target):
                anchors = {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-")
                           for h in re.findall(r"^#+ (.*)", read(target), re.M)}
                check(anchor in anchors, f"{os.path.basename(page)}: there is a heading for {link}")


def check_packages():
    needed = {line.split()[0] for line in read("scripts", "packages").splitlines() if re.match(r"lib\S+-dev build$", line)}
    control = read("packaging", "debian", "control")
    missing = {name for name in needed if not re.search(rf"[ \n]{re.escape(name)}[ ,\n]", control)} - {"libc6-dev"}
    check(not missing, f"the Debian package names what it needs to be built: {missing}")


def check_pictures():
    """Made by docs/pictures/make and bench/storms: of an example alone, and small."""
    directory = os.path.join(TOP, "docs", "pictures")
    pictures = [n for n in os.listdir(directory) if n.endswith((".svg", ".png"))]
    shown = set(re.findall(r"\]\((?:docs/)?pictures/([\w.-]+)\)", read("README.md") + read("docs", "tour.md") + read("docs", "operations.md")))
    same(set(pictures), shown, "pictures that there are and that are shown")
    check(sum(os.path.getsize(os.path.join(directory, n)) for n in pictures) < 500000, "all pictures are small together")
    for name in pictures:
        if name.endswith(".svg"):
            text = "".join(xml.etree.ElementTree.parse(os.path.join(directory, name)).getroot().itertext())
            paths = re.findall(r"(?<![\w.])/(?:home|root|tmp|srv|opt|mnt|var|usr/src)/[\w./-]*", text)
            check(all(p.startswith("/srv/example/") for p in paths), f"{name} is of the example: {paths}")


check_options()
check_man_pages()
check_shown_commands()
check_completion()
check_packages()
check_pictures()
check_configuration()
check_losses_and_metrics()
check_api()
check_sources()
check_links()
print(f"{failures} failures")
sys.exit(failures > 0)
