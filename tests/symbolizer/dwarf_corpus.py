#!/usr/bin/env python3
"""Builds programs in the ways debug information is made, and compares the inline chain of their addresses with
what eu-addr2line, llvm-symbolizer and addr2line say. Where two of these agree, so must ours, unless the
difference is one of those listed in REASONS.

    dwarf_corpus.py LOOKUP [--only NAME] [--full] [--show N] [--keep DIRECTORY]

LOOKUP is the program dwarf_lookup. A variant whose compiler is not installed is skipped and named. --full takes
every address of .text instead of a sample."""

import argparse
import collections
import concurrent.futures
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CORPUS = os.path.join(HERE, 'corpus')
TIMEOUT = 90       # seconds for one run of any tool
SAMPLE = 700       # addresses of a variant
SAMPLE_SLOW = 250  # of large ones, on which eu-addr2line takes milliseconds an address

Frame = collections.namedtuple('Frame', 'name short file line')

# -- building -----------------------------------------------------------------------------------------------


class Skip(Exception):
    pass


def run(*argv, cwd=None, env=None, stdin=None, check=True):
    try:
        r = subprocess.run([str(a) for a in argv], cwd=cwd, env=env, input=stdin, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, errors='replace', timeout=TIMEOUT)
    except FileNotFoundError as e:
        raise Skip(f'{argv[0]} is not installed') from e
    except subprocess.TimeoutExpired as e:
        raise RuntimeError(f'{argv[0]} took more than {TIMEOUT} s') from e
    if check and r.returncode != 0:
        raise RuntimeError(f'{" ".join(map(str, argv))}: {r.stderr.strip()[:2000]}')
    return r.stdout


class Variant:
    """What was built: the file ours reads, the file the others read, and where ours finds the rest."""

    def __init__(self, path, peers=None, args=(), slow=False, only=None):
        self.path, self.peers, self.args, self.slow, self.only = path, peers or path, list(args), slow, only


def cc(compiler):
    return 'gcc' if compiler == 'gcc' else 'clang'


def cxx(compiler):
    return 'g++' if compiler == 'gcc' else 'clang++'


def native(d, compiler, *flags, link=(), cxxflags=()):
    """The C++ and C program, from three units."""
    for src, tool in (('shapes.cc', cxx(compiler)), ('module.cc', cxx(compiler)), ('plain.c', cc(compiler))):
        extra = cxxflags if tool == cxx(compiler) else ()
        run(tool, *flags, *extra, '-c', os.path.join(CORPUS, src), '-o', src + '.o', cwd=d)
    run(cxx(compiler), *flags, *link, 'shapes.cc.o', 'module.cc.o', 'plain.c.o', '-o', 'program', cwd=d)
    return os.path.join(d, 'program')


def simple(compiler, *flags, link=(), cxxflags=()):
    return lambda d: Variant(native(d, compiler, *flags, link=link, cxxflags=cxxflags))


def foreign(compiler, *flags):
    """The C part alone, without a C library."""
    def build(d):
        out = os.path.join(d, 'program')
        run(compiler, *flags, '-ffreestanding', '-nostdlib', '-static', os.path.join(CORPUS, 'plain.c'),
            os.path.join(CORPUS, 'start.c'), '-o', out)
        return Variant(out)
    return build


def objcopied(how, *flags):
    """Ours reads what the others cannot all read; they read the original."""
    def build(d):
        plain = native(d, 'gcc', '-O2', *flags)
        out = plain + '.copy'
        run('objcopy', how, plain, out)
        return Variant(out, peers=plain)
    return build


def only_debug(d):
    plain = native(d, 'gcc', '-O2', '-g')
    out = plain + '.debug'
    run('objcopy', '--only-keep-debug', plain, out)
    return Variant(out, peers=plain)


def dwz(multifile, *flags):
    def build(d):
        plain = native(d, 'gcc', '-O2', *flags)
        one, two, alt = plain + '.1', plain + '.2', os.path.join(d, 'common.alt')
        shutil.copy(plain, one)
        if not multifile:
            run('dwz', one)
            return Variant(one, peers=plain)
        shutil.copy(plain, two)
        run('dwz', '-l', 'none', '-L', 'none', '-m', alt, one, two, cwd=d)
        if not os.path.exists(alt):
            raise RuntimeError('dwz found nothing in common')
        return Variant(one, peers=plain, args=['-a', alt])
    return build


def split(compiler, packager, *flags):
    """Without a packager: .dwo files. The others read .dwo files in both cases. What GCC 12 writes of DWARF 5
    no packager of Debian 12 takes: dwp refuses it, llvm-dwp 14 does not end."""
    def build(d):
        program = native(d, compiler, '-O2', '-gsplit-dwarf', *flags)
        if not packager:
            return Variant(program)
        package = os.path.join(d, 'package.dwp')
        run(packager, '-e', program, '-o', package, cwd=d)
        moved = os.path.join(d, 'nowhere')
        os.mkdir(moved)
        return Variant(program, args=['-w', moved, '-d', package])
    return build


def rust(*flags):
    def build(d):
        out = os.path.join(d, 'program')
        run('rustc', *flags, os.path.join(CORPUS, 'shapes.rs'), '-o', out, cwd=d)
        return Variant(out, slow=True)
    return build


def rust_lines(d):
    try:
        return rust('-O', '-C', 'debuginfo=line-tables-only')(d)
    except RuntimeError:  # before Rust 1.71: the nearest there was
        return rust('-O', '-C', 'debuginfo=1')(d)


def go(*flags):
    def build(d):
        out = os.path.join(d, 'program')
        shutil.copy(os.path.join(CORPUS, 'shapes.go'), d)
        env = dict(os.environ, GOCACHE=os.path.join(tempfile.gettempdir(), 'profd-go-cache'), GO111MODULE='off',
                   CGO_ENABLED='0')
        run('go', 'build', *flags, '-o', out, 'shapes.go', cwd=d, env=env)
        return Variant(out, slow=True)
    return build


GC = ('-ffunction-sections', '-fdata-sections')
DROP = '-Wl,--gc-sections'

VARIANTS = {
    'gcc-dwarf2': simple('gcc', '-O2', '-gdwarf-2', '-gstrict-dwarf'),
    'gcc-dwarf3': simple('gcc', '-O2', '-gdwarf-3'),
    'gcc-dwarf4': simple('gcc', '-O2', '-gdwarf-4'),
    'gcc-dwarf5': simple('gcc', '-O2', '-gdwarf-5'),
    'gcc-O3-dwarf64': simple('gcc', '-O3', '-g', '-gdwarf64'),
    'gcc-O0': simple('gcc', '-O0', '-g'),
    'gcc-g1': simple('gcc', '-O2', '-g1'),
    'gcc-type-units': simple('gcc', '-O2', '-g', '-fdebug-types-section'),
    'gcc-lto': simple('gcc', '-O2', '-g', '-flto'),
    'gcc-gc-sections': simple('gcc', '-O2', '-g', *GC, link=[DROP]),
    'gcc-gc-sections-dwarf4-gold': simple('gcc', '-O2', '-gdwarf-4', *GC, link=[DROP, '-fuse-ld=gold']),
    'gcc-gc-sections-lld': simple('gcc', '-O2', '-g', *GC, link=[DROP, '-fuse-ld=lld']),
    'gcc-only-debug': only_debug,
    'gcc-zlib': objcopied('--compress-debug-sections=zlib', '-g'),
    'gcc-zdebug': objcopied('--compress-debug-sections=zlib-gnu', '-g'),
    'gcc-zstd': objcopied('--compress-debug-sections=zstd', '-g'),
    'gcc-dwz': dwz(False, '-g'),
    'gcc-dwz-dwarf4': dwz(False, '-gdwarf-4'),
    'gcc-dwz-multifile': dwz(True, '-g'),
    'gcc-dwz-multifile-dwarf4': dwz(True, '-gdwarf-4'),
    'gcc-split-dwarf4': split('gcc', None, '-gdwarf-4'),
    'gcc-split-dwarf5': split('gcc', None, '-gdwarf-5'),
    'gcc-dwp-dwarf4': split('gcc', 'dwp', '-gdwarf-4'),
    'gcc-32': foreign('gcc', '-m32', '-O2', '-g'),
    'gcc-32-dwarf2': foreign('gcc', '-m32', '-O2', '-gdwarf-2'),
    'clang-dwarf2': simple('clang', '-O2', '-gdwarf-2'),
    'clang-dwarf3': simple('clang', '-O2', '-gdwarf-3'),
    'clang-dwarf4': simple('clang', '-O2', '-gdwarf-4'),
    'clang-dwarf5': simple('clang', '-O2', '-gdwarf-5'),
    'clang-dwarf64': simple('clang', '-O2', '-gdwarf-5', '-gdwarf64'),
    'clang-line-tables-only': simple('clang', '-O2', '-gline-tables-only'),
    'clang-aranges': simple('clang', '-O2', '-g', '-gdwarf-aranges'),
    'clang-lto-lld': simple('clang', '-O2', '-g', '-flto', link=['-fuse-ld=lld']),
    'clang-gc-sections-lld': simple('clang', '-O2', '-g', *GC, link=[DROP, '-fuse-ld=lld']),
    'clang-gc-sections-dwarf4-lld': simple('clang', '-O2', '-gdwarf-4', *GC, link=[DROP, '-fuse-ld=lld']),
    'clang-split-dwarf4': split('clang', None, '-gdwarf-4'),
    'clang-split-dwarf5': split('clang', None, '-gdwarf-5'),
    'clang-dwp-dwarf4': split('clang', 'llvm-dwp', '-gdwarf-4'),
    'clang-dwp-dwarf5': split('clang', 'llvm-dwp', '-gdwarf-5'),
    'clang-aarch64': foreign('clang', '--target=aarch64-linux-gnu', '-fuse-ld=lld', '-O2', '-g'),
    'clang-32': foreign('clang', '-m32', '-fuse-ld=lld', '-O2', '-gdwarf-4'),
    'rust-release': rust('-O', '-g'),
    'rust-line-tables-only': rust_lines,
    'rust-debug': rust('-g'),
    'rust-lto-dwarf4': rust('-O', '-g', '-C', 'lto=fat', '-C', 'codegen-units=1'),
    'go': go(),
    'go-plain': go('-ldflags=-compressdwarf=false'),
}

# -- what the readers say -----------------------------------------------------------------------------------


def text_range(path):
    for line in run('readelf', '-SW', path).splitlines():
        m = re.search(r'\] \.text\s+\S+\s+([0-9a-f]+) [0-9a-f]+ ([0-9a-f]+)', line)
        if m:
            return int(m.group(1), 16), int(m.group(2), 16)
    raise RuntimeError(f'{path} has no .text')


def parse(output, ours=False):
    """Chains by address, from the layout of `addr2line -afi`."""
    chains, chain, name = {}, None, None
    for line in output.splitlines():
        if re.fullmatch(r'0x[0-9a-f]+', line):
            chain, name = chains.setdefault(int(line, 16), []), None
        elif chain is None or line == '':
            continue
        elif name is None:
            name = line
        else:
            place = re.sub(r' \(discriminator \d+\)$', '', line)
            m = re.fullmatch(r'(.*?)(?::(\d+|\?))?(?::(\d+))?', place)
            file, number = (m.group(1), m.group(2) or '0') if m else (place, '0')
            short = name
            if ours:
                name, short = name.split('\t')
            name = re.sub(r' inlined (at|in) .*', '', name)
            chain.append(Frame(name, short, '' if file == '??' else os.path.normpath(file),
                               0 if number == '?' else int(number)))
            name = None
    return chains


def ask(lookup, v, addresses):
    stdin = ''.join(f'{a:#x}\n' for a in addresses)
    ours = parse(run(lookup, *v.args, v.path, stdin=stdin), ours=True)
    peers = {}
    for name, argv in {'eu': ['eu-addr2line', '-a', '-f', '-i', '-e'],
                       'llvm': ['llvm-symbolizer', '--inlines', '--no-demangle', '--addresses',
                                '--output-style=GNU', '-e'],
                       'gnu': ['addr2line', '-a', '-f', '-i', '-e']}.items():
        peers[name] = parse(run(*argv, v.peers, stdin=stdin, cwd=os.path.dirname(v.peers), check=False))
    return ours, peers


# -- comparing ----------------------------------------------------------------------------------------------

CLONE = re.compile(r'\.(cold|part|constprop|isra|lto_priv|llvm|localalias|abi0)(\.\d+)*')
demangled = {}


def demangle_all(names):
    names = sorted(n for n in names if n.startswith('_') and n not in demangled)
    if names:
        out = run('c++filt', '-p', stdin='\n'.join(names)).split('\n')
        demangled.update(zip(names, out))


def last_part(name):
    """What follows the last "::" outside of brackets."""
    depth, start = 0, 0
    for i, c in enumerate(name):
        if c in '<({[':
            depth += 1
        elif c in '>)}]' and name[i - 1:i] != '-':
            depth -= 1
        elif c == ':' and depth <= 0 and name[i - 1:i] == ':':
            start = i + 1
    return name[start:]


def reduce_name(name):
    """To what all readers can agree on: without scopes, template arguments, marks of clones."""
    name = re.sub(r'\.\d+$', '', CLONE.sub('', name))  # the number: symbols of functions within functions
    name = demangled.get(name, name)
    name = re.sub(r'::h[0-9a-f]{16}$', '', name)
    name = re.sub(r'\[abi:\w+\]|\[clone [^]]*\]', '', name)
    name = last_part(name.strip())
    if 'operator' not in name:
        name = re.sub(r'<.*', '', name) or name
    else:
        name = re.sub(r'operator (.*)', 'operator conversion', name)
        name = re.sub(r'(operator\W\W?)<.*>$', r'\1', name)
    return name


def reduced(chain):
    return tuple((reduce_name(f.name), os.path.basename(f.file), f.line) for f in chain)


def constructor(name):
    """The base and complete forms of a constructor share their code and may carry either's name."""
    return re.sub(r'([CD])[0-5](E|I)', r'\1?\2', CLONE.sub('', name))


def no_die(ours, theirs):
    return (ours[-1].name == '??' and len(ours) == len(theirs) and
            [(f.file, f.line) for f in map(strip, ours)] == [(f.file, f.line) for f in map(strip, theirs)])


def strip(f):
    return Frame(f.name, f.short, os.path.basename(f.file), f.line)


def symbol_only(ours, theirs):
    return ours[-1].name == '??' and not ours[-1].file and all(f.line == 0 for f in theirs)


# Differences that were looked into, each with what it is: (test of ours and theirs, reason).
REASONS = [
    (symbol_only, 'no debug information: the name is from the symbol table'),
    (no_die, 'a line but no function in DWARF: the name is from the symbol table'),
]


def explain(ours, theirs):
    for test, reason in REASONS:
        if test(ours, theirs):
            return reason
    return None


def compare(ours, peers):
    counts, reasons, wrong = collections.Counter(), collections.Counter(), []
    names = {f.name for chains in [ours, *peers.values()] for c in chains.values() for f in c}
    demangle_all({CLONE.sub('', n) for n in names})
    for address, chain in ours.items():
        mine = reduced(chain)
        theirs = {p: chains.get(address, []) for p, chains in peers.items()}
        shapes = {p: reduced(c) for p, c in theirs.items()}
        same = [p for p in shapes if shapes[p] == mine]
        agreed = [p for p in shapes if list(shapes.values()).count(shapes[p]) > 1]
        counts[f'agrees with {len(same)}'] += 1
        if same:
            # Both mangled: then the whole name has to be the same.
            for p in same:
                for a, b in zip(chain, theirs[p]):
                    if a.name[:2] in ('_Z', '_R') and b.name[:2] == a.name[:2] and \
                            constructor(a.name) != constructor(b.name):
                        counts['other symbol of the same code'] += 1
        elif agreed:
            reason = explain(chain, theirs[agreed[0]])
            if reason:
                reasons[reason] += 1
            else:
                counts['AGAINST TWO'] += 1
                wrong.append((address, chain, theirs))
        if any(f.name != '??' for f in chain):
            counts['named'] += 1
    return counts, reasons, wrong


def show(address, chain, theirs):
    print(f'      {address:#x}')
    print('        ours', ' < '.join(f'{f.name} {os.path.basename(f.file)}:{f.line}' for f in chain))
    for p, c in theirs.items():
        print(f'        {p:4}', ' < '.join(f'{f.name} {os.path.basename(f.file)}:{f.line}' for f in c))


def one(name, build, top, args):
    """Builds and compares one variant: (counts, reasons, wrong, addresses, slow), or what went wrong."""
    d = os.path.join(top, name)
    shutil.rmtree(d, ignore_errors=True)
    os.makedirs(d)
    try:
        v = build(d)
        start, size = text_range(v.path)
        addresses = range(start, start + size)
        if not args.full:
            n = min(size, SAMPLE_SLOW if v.slow else SAMPLE)
            addresses = sorted(random.Random(name).sample(addresses, n))
        return *compare(*ask(os.path.abspath(args.lookup), v, addresses)), len(addresses), v.slow
    except (Skip, RuntimeError) as e:
        return e
    finally:
        if not args.keep:
            shutil.rmtree(d, ignore_errors=True)


def report(name, result, args):
    """Prints a variant; True when it failed."""
    if isinstance(result, Skip):
        print(f'skip {name}: {result}')
        return False
    if isinstance(result, RuntimeError):
        print(f'FAIL {name}: {result}')
        return True
    counts, _, wrong, n, slow = result
    # A reader that finds nothing contradicts nobody: most of a program built here has names.
    bad = bool(wrong) or counts['named'] < n * (0.5 if slow else 0.8)
    print(f'{"FAIL" if bad else "ok  "} {name:30} {n:6} addresses,',
          ', '.join(f'{k} {v}' for k, v in sorted(counts.items())), flush=True)
    for w in wrong[:args.show]:
        show(*w)
    return bad


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('lookup')
    ap.add_argument('--only', default='')
    ap.add_argument('--full', action='store_true')
    ap.add_argument('--show', type=int, default=3)
    ap.add_argument('--keep')
    args = ap.parse_args()
    top = args.keep or tempfile.mkdtemp(prefix='dwarf-corpus-')
    failed, done, reasons = [], 0, collections.Counter()

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = {name: pool.submit(one, name, build, top, args) for name, build in VARIANTS.items()
                if not args.only or re.search(args.only, name)}
        for name, job in jobs.items():
            result = job.result()
            if report(name, result, args):
                failed.append(name)
            if isinstance(result, tuple):
                reasons.update(result[1])
                done += 1

    for reason, n in reasons.most_common():
        print(f'explained, {n:6} addresses: {reason}')
    if not args.keep:
        shutil.rmtree(top, ignore_errors=True)
    if not done:
        print('FAIL no variant could be built')
    if failed:
        print('failed:', ' '.join(failed))
    return 1 if failed or not done else 0


if __name__ == '__main__':
    sys.exit(main())
