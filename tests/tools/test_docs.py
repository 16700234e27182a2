"""Documents and program say the same: options in --help, man pages and completion; keys of the configuration in the
daemon, the shipped file and profd.conf(5); causes of losses and names of metrics; links. --help fits a screen."""
import os
import re
import subprocess
import sys

PROFCTL = os.environ["PROFCTL"]
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


def check_options():
    verbs = re.findall(r"^  ([a-z]+) +\S", help_of(), re.M)
    check(len(verbs) > 10, f"commands are found: {verbs}")
    shared = man_options(read("docs", "man", "profctl.1.scd"))
    completion = read("packaging", "completions", "profctl")
    variables = dict(re.findall(r'local (\w+)="([^"]*)"', completion))
    own = dict(re.findall(r'^\t(\w+)\) own="([^"]*)" ;;', completion, re.M))
    same(set(verbs) | {"help", "version"}, set(variables["verbs"].split()), "commands in --help and in the completion")
    for verb in verbs:
        text = help_of(verb)
        lines = text.splitlines()
        check(len(lines) <= SCREEN[0] and max(map(len, lines)) <= SCREEN[1], f"profctl {verb} --help fits {SCREEN}")
        # What the text says about other commands' options is no option of this one.
        said = options_of("\n".join(line for line in lines if line.startswith(("  ", "Source", "When", "What")))) - {"--help"}
        page = read("docs", "man", f"profctl-{verb}.1.scd")
        same(said - shared, man_options(page) - shared, f"options of {verb} in --help and in its man page")
        completed = own[verb]
        for _ in range(3):
            completed = re.sub(r"\$(\w+)", lambda m: variables[m.group(1)], completed)
        same(said, options_of(completed) - {"--help"}, f"options of {verb} in --help and in the completion")


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


check_options()
check_configuration()
check_losses_and_metrics()
check_links()
print(f"{failures} failures")
sys.exit(failures > 0)
