#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Real programs under each allocator: CPU time of all their processes, peak memory of the largest one, page faults; for
servers CPU time of a fixed number of requests, and the memory of all their processes after three idle seconds.

Inputs are made here or come with Debian's packages (tools/setup.sh applications installs them). Before anything is
measured, each program runs once under each allocator: the dynamic linker must say that its malloc is the allocator's,
and its output must be the same as under the system's. Samples are interleaved as in run.py, and allocators are written
as there; the first is compared with the rest. Programs that are not installed are left out by name.
"""
import argparse
import hashlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import run
import tables
import workloads

IDLE_SECONDS = 3
START_SECONDS = 60
PORT = 38117
TICKS = os.sysconf("SC_CLK_TCK")
SOURCE = Path(__file__).resolve().parent.parent / "src"


@dataclass(frozen=True)
class Application(workloads.Workload):
    """The command's first word is a program; SCRATCH is a folder with the inputs below. If the command writes a file
    `result`, its output is that file, else what it prints. A server serves the command `load` after `ready` succeeds;
    these run under the system's malloc, and what `load` prints is the output."""
    result: str = ""
    ready: str = ""
    load: str = ""
    prepare: str = ""       # once for each start


def python(text):
    return f"/usr/bin/python3 -S -c '{text}'"


# Programs in each language that allocate much and print little.
RUBY = "h = {}; 400000.times { |i| (h[\"k#{i * 7919 % 50021}\"] ||= []) << \"v#{i}\" }; " \
       "puts h.sort_by { |k, v| [v.size, k] }.first(5).inspect, h.values.map(&:join).join.size"
LUA = "local t = {} for i = 1, 800000 do local k = i * 7919 % 50021; t[k] = {i, t[k] and t[k][1], k .. \"x\"} end " \
      "local s = 0 for k, v in pairs(t) do s = s + v[1] end print(s)"
GAWK = "{ for (i = 1; i <= NF; i++) count[$i \"/\" (NR % 97)]++ } END { for (w in count) n += count[w] * length(w); " \
       "print n, length(count) }"
PHP = "for ($r = 0; $r < 6; $r++) { $a = []; for ($i = 0; $i < 200000; $i++) { $a[\"k\" . ($i * 7919 % 50021)][] = " \
      "\"v$i\"; } ksort($a); } echo count($a), \" \", strlen(json_encode($a)), \"\\n\";"
NODE = "const m = new Map(); for (let i = 0; i < 500000; i++) { const k = \"k\" + i * 7919 % 50021; " \
       "m.set(k, {i, k, b: Buffer.alloc(40 + i % 200)}); } " \
       "console.log(m.size, JSON.stringify([...m.keys()].sort()).length);"
NUMPY = "import numpy as n\nr = n.random.RandomState(1)\ns = 0\nfor i in range(300):\n" \
        " a = r.rand(20000 + 1000 * (i % 90)); b = a * 2 + 1; s += float((b[::3] - n.sort(b)[:len(b[::3])]).sum())\n" \
        "print(round(s, 3))"
R_SCRIPT = "set.seed(1); l <- lapply(1:60000, function(i) runif(i %% 40 + 1)); d <- data.frame(k = rep(1:3000, 40), " \
           "v = runif(120000)); a <- aggregate(v ~ k, d, mean); m <- lm(v ~ factor(k %% 50), d); " \
           "cat(round(sum(sapply(l, sum)), 3), round(sum(a$v), 3), round(sum(coef(m)), 3), \"\\n\")"
OCTAVE = "s = 0; c = {}; for i = 1:40000; c{end + 1} = sprintf(\"%d\", mod(i * 7919, 50021)); end; c = sort(c); " \
         "for i = 1:150; a = ones(200, 200) * i; s += sum((a * a)(:)); end; printf(\"%s %g\\n\", c(77){:}, s)"
SWIPL = "nrev([], []). nrev([H|T], R) :- nrev(T, S), append(S, [H], R). " \
        "main :- numlist(1, 500, L), forall(between(1, 60, _), nrev(L, _)), " \
        "forall(between(1, 200000, I), (atom_concat(k, I, A), assertz(f(A, I)))), aggregate_all(count, f(_, _), N), " \
        "writeln(N). :- initialization((main, halt))."
Z3 = "(declare-fun q (Int) Int)\n" + "".join(
    f"(assert (and (<= 0 (q {i})) (< (q {i}) 13)))\n" + "".join(
        f"(assert (and (not (= (q {i}) (q {j}))) (not (= (- (q {i}) (q {j})) {i - j})) "
        f"(not (= (- (q {j}) (q {i})) {i - j}))))\n" for j in range(i)) for i in range(13)) + "(check-sat)\n"
OPENSCAD = "difference() { cube(40, center = true); for (x = [-15:10:15], y = [-15:10:15]) translate([x, y, 0]) " \
           "cylinder(h = 60, r = 3, center = true, $fn = 24); sphere(r = 22, $fn = 30); }\n"
CPP = "#include <map>\n#include <regex>\n#include <iostream>\n#include <string>\n#include <algorithm>\n" + "".join(
    f"std::map<std::string, std::map<int, std::string>> m{i}; int f{i}(const std::string &s) {{ std::regex r(s + "
    f"\"[a-z]{i}\"); m{i}[s][{i}] = s; return std::regex_match(s, r) + (int)m{i}.size(); }}\n" for i in range(3))
RUST = "use std::collections::*;\n" + "".join(
    f"#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)] pub enum E{i} {{ A(Vec<u{8 << i % 4}>), "
    f"B(String, Box<Option<E{max(0, i - 1)}>>), C }}\n"
    f"pub fn f{i}(x: &BTreeMap<E{i}, HashMap<String, E{i}>>) -> Vec<String> {{ x.iter().flat_map(|(k, v)| "
    f"v.iter().map(move |(a, b)| format!(\"{{k:?}}{{a}}{{b:?}}\"))).collect() }}\n" for i in range(10))
VERILOG = "module m(input clk, input [15:0] a, b, output reg [15:0] y);\n" + "".join(
    f"reg [15:0] r{i}; always @(posedge clk) r{i} <= (a * {i + 3}) ^ (b + r{max(0, i - 1)});\n"
    for i in range(4)) + "always @(posedge clk) y <= " + " ^ ".join(f"r{i}" for i in range(4)) + ";\nendmodule\n"

BATCH = [
    Application("clang", "clang -O2 -c SCRATCH/generated.c -o SCRATCH/out", result="out"),
    Application("gcc", "gcc -O2 -c SCRATCH/generated.c -o SCRATCH/out", result="out"),
    Application("g++", "g++ -O1 -c SCRATCH/generated.cc -o SCRATCH/out", result="out"),
    Application("clang++", "clang++ -O1 -c SCRATCH/generated.cc -o SCRATCH/out", result="out"),
    Application("rustc", "/usr/bin/rustc -O --crate-type rlib --emit obj SCRATCH/generated.rs -o SCRATCH/out",
                result="out"),
    Application("cppcheck", f"cppcheck --quiet --enable=all --error-exitcode=0 {SOURCE}/core/pages"),
    Application("doxygen", "doxygen -q SCRATCH/Doxyfile"),
    Application("git", "git -C SCRATCH/repository log --stat -p"),
    Application("git-gc", "git -C SCRATCH/repository repack -adfq"),
    Application("python-json", python(workloads.PYTHON_JSON.replace("{6}", "6")), env=workloads.PLAIN_PYTHON),
    Application("python-objects", python(workloads.PYTHON_OBJECTS.replace("{6}", "4")), env=workloads.PLAIN_PYTHON),
    Application("python-ast", python("import ast, glob; print(sum(len(ast.dump(ast.parse(open(f).read()))) for f in "
                                     "sorted(glob.glob(\"/usr/lib/python3*/*.py\"))[:60]))")),
    Application("numpy", f"/usr/bin/python3 -c '{NUMPY}'", env={"OPENBLAS_NUM_THREADS": "1"}),
    Application("perl", f"perl -e '{workloads.PERL.replace('{3}', '4')}'"),
    Application("ruby", f"ruby -e '{RUBY}'"),
    Application("lua", f"lua5.4 -e '{LUA}'"),
    Application("gawk", f"gawk '{GAWK}' SCRATCH/words"),
    Application("php", f"php -d memory_limit=-1 -r '{PHP}'"),
    Application("node", f"node -e '{NODE}'"),
    Application("java", "java -Xmx64m SCRATCH/Main.java"),
    Application("sqlite", "sqlite3 :memory: '.read SCRATCH/script.sql'"),
    Application("octave", f"octave-cli --no-init-file --eval '{OCTAVE}'", env={"OPENBLAS_NUM_THREADS": "1"}),
    Application("R", f"Rscript --vanilla -e '{R_SCRIPT}'"),
    Application("ffmpeg", "ffmpeg -nostdin -v error -f lavfi -i testsrc=d=4:s=640x360 -c:v libx264 -threads 2 "
                "-f framecrc -"),
    Application("ghostscript", "gs -q -dNOPAUSE -dBATCH -sDEVICE=pdfwrite -sOutputFile=SCRATCH/out SCRATCH/page.ps"),
    Application("pdftotext", "pdftotext SCRATCH/page.pdf SCRATCH/out", result="out"),
    Application("imagemagick", "/usr/bin/convert -size 1200x900 plasma:tan-blue -seed 1 -blur 0x4 -resize 50% "
                "-colors 64 gif:SCRATCH/out", env={"MAGICK_THREAD_LIMIT": "1"}),
    Application("rsvg", "rsvg-convert -w 1500 SCRATCH/picture.svg -o SCRATCH/out", result="out"),
    Application("jq", "jq 'group_by(.k) | map({k: .[0].k, n: length, s: (map(.v) | add)}) | length' SCRATCH/data.json"),
    Application("xmllint", "xmllint --format SCRATCH/data.xml"),
    Application("xsltproc", "xsltproc SCRATCH/style.xsl SCRATCH/data.xml"),
    Application("graphviz", "dot -Tsvg SCRATCH/graph.dot"),
    Application("gnuplot", "gnuplot SCRATCH/plot.gp"),
    Application("z3", "z3 SCRATCH/queens.smt2"),
    Application("openscad", "openscad -q -o SCRATCH/out.stl SCRATCH/model.scad", result="out.stl"),
    Application("yosys", "yosys -q -p 'read_verilog SCRATCH/m.v; synth -top m; write_blif SCRATCH/out'"),
    Application("swipl", "swipl SCRATCH/reverse.pl"),
    Application("groff", "groff -man -Tutf8 SCRATCH/page.1"),
]

LISTENS = f"bash -c '</dev/tcp/127.0.0.1/{PORT}'"
HTTP = f"ab -q -n 3000 -c 8 http://127.0.0.1:{PORT}/"
COMPLETE = " | grep -E '^(Complete|Failed) requests'"
SQL = "SCRATCH/sql"
SERVERS = [
    Application("redis-server", f"redis-server --port {PORT} --save '' --appendonly no --dir SCRATCH",
                links_allocator=True, ready=f"redis-cli -p {PORT} ping",
                load=f"redis-benchmark -p {PORT} -q -n 120000 -r 40000 -P 16 -d 200 -t set,get,lpush,hset,zadd "
                     f">/dev/null; redis-cli -p {PORT} flushall"),
    Application("memcached", f"memcached -u root -l 127.0.0.1 -p {PORT} -m 200",
                ready=LISTENS,
                load=f"/usr/bin/python3 SCRATCH/memcache.py {PORT}"),
    Application("postgres", f"setpriv --reuid=nobody --regid=nogroup --clear-groups {workloads.POSTGRES} -D SCRATCH/pg "
                f"-k SCRATCH/pg -p {PORT} -c listen_addresses=",
                prepare="rm -rf SCRATCH/pg; install -d -o nobody SCRATCH/pg; setpriv --reuid=nobody --regid=nogroup "
                        f"--clear-groups {Path(workloads.POSTGRES).parent}/initdb -U pg -A trust -D SCRATCH/pg",
                ready=f"psql -h SCRATCH/pg -p {PORT} -U pg -c 'select 1' postgres",
                load=f"pgbench -q -i -s 3 -h SCRATCH/pg -p {PORT} -U pg postgres; pgbench -n -c 4 -t 600 -h SCRATCH/pg "
                     f"-p {PORT} -U pg postgres | grep processed"),
    Application("mariadb", f"mariadbd --no-defaults --user=root --datadir={SQL} --socket={SQL}.sock --skip-networking "
                "--innodb-buffer-pool-size=16M",
                prepare=f"rm -rf {SQL}; mariadb-install-db --no-defaults --user=root --datadir={SQL} "
                        "--auth-root-authentication-method=normal",
                ready=f"mariadb -S {SQL}.sock -e 'select 1'", load=f"mariadb -S {SQL}.sock <SCRATCH/script-maria.sql"),
    Application("nginx", "nginx -c SCRATCH/nginx.conf", ready=LISTENS,
                load=HTTP.replace("3000", "20000") + "page.html" + COMPLETE),
    Application("python-http", f"/usr/bin/python3 -m http.server -b 127.0.0.1 -d SCRATCH/site {PORT}",
                ready=LISTENS, load=HTTP + "page.html 2>/dev/null" + COMPLETE),
    Application("php-server", f"php -S 127.0.0.1:{PORT} -t SCRATCH/site", ready=LISTENS,
                load=HTTP.replace("3000", "150") + "page.php" + COMPLETE),
    Application("node-http", "node SCRATCH/server.js", ready=LISTENS,
                load=HTTP.replace("3000", "10000") + COMPLETE),
    Application("named", "named -g -c SCRATCH/named.conf", ready=f"dig +short -p {PORT} @127.0.0.1 h1.example",
                load=f"dig +short -p {PORT} @127.0.0.1 -f SCRATCH/queries | sort | md5sum"),
]

PAGE_1 = ".TH A 1\n.SH NAME\na\n" + "".join(f".SS Part {i}\n.PP\n" + "The quick brown fox jumps over it. " * 40 + "\n"
                                          for i in range(300))
NGINX = ("daemon off; worker_processes 2; pid SCRATCH/nginx.pid; error_log SCRATCH/nginx.err; user root;\n"
         "events {} http {{ access_log off; client_body_temp_path SCRATCH/n1; proxy_temp_path SCRATCH/n2; "
         "fastcgi_temp_path SCRATCH/n3; uwsgi_temp_path SCRATCH/n4; scgi_temp_path SCRATCH/n5; gzip on; "
         "server {{ listen 127.0.0.1:{}; root SCRATCH/site; }} }}\n").format("{}", PORT)
NAMED = (f'options {{ directory "SCRATCH"; listen-on port {PORT} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; '
         'recursion no; pid-file none; session-keyfile none; }; controls {};\n'
         'zone "example" { type primary; file "SCRATCH/zone"; };\n')
JAVA = ("import java.util.*;\npublic class Main { public static void main(String[] a) { Map<String, List<String>> m = "
        "new TreeMap<>(); for (int i = 0; i < 300000; i++) m.computeIfAbsent(\"k\" + i * 7919 % 50021, k -> new "
        "ArrayList<>()).add(\"v\" + i); System.out.println(m.size() + m.values().stream().mapToInt(List::size).sum()); "
        "} }\n")
MEMCACHE = """import random, socket, sys
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
file, rng, stored = link.makefile("rb"), random.Random(1), 0
for _ in range(200):
    items = [(rng.randrange(30000), rng.randrange(10, 4000)) for _ in range(200)]
    link.sendall(b"".join(b"set k%d 0 0 %d\\r\\n%s\\r\\n" % (k, n, b"x" * n) for k, n in items))
    stored += sum(file.readline() == b"STORED\\r\\n" for _ in items)
print(stored)
"""


def write_inputs(scratch):
    """Everything that the commands read."""
    workloads.write_inputs(scratch)
    rng = random.Random(1)
    words = ["w%d" % rng.randrange(20000) for _ in range(400000)]
    rows = [{"k": rng.randrange(5000), "v": rng.randrange(1000), "t": words[i]} for i in range(60000)]
    xml = "".join(f'<row id="{i}"><k>{row["k"]}</k><v a="{row["t"]}">{row["v"]}</v></row>'
                  for i, row in enumerate(rows))
    html = "<html><body>" + "".join(f"<p class=c{i}>{' '.join(words[i * 20:i * 20 + 20])}<b>{i}"
                                    for i in range(6000))
    schema = re.sub(r"\{(\d+)\}", r"\1", workloads.SQLITE.replace("60000", "250000"))
    shapes = "".join(f'<circle cx="{rng.randrange(900)}" cy="{rng.randrange(900)}" r="{rng.randrange(60)}" '
                     f'fill="#{rng.randrange(1 << 24):06x}" opacity="0.5"/>' for _ in range(600))
    edges = "".join(f"n{rng.randrange(260)} -> n{rng.randrange(260)};\n" for _ in range(360))
    inserts = "".join("INSERT INTO t(name, x) VALUES " + ",".join(f"('name {i * 50 + j}', {j / 3})"
                                                                  for j in range(50)) + ";\n" for i in range(1500))
    text = "/Times-Roman findfont 9 scalefont setfont\n" + "".join(
        "".join(f"50 {780 - 11 * line} moveto ({' '.join(words[(p * 60 + line) * 12:(p * 60 + line + 1) * 12])}) show\n"
                for line in range(66)) + "showpage\n" for p in range(120))
    files = {
        "generated.cc": CPP, "generated.rs": RUST, "m.v": VERILOG, "queens.smt2": Z3, "model.scad": OPENSCAD,
        "reverse.pl": ":- use_module(library(aggregate)).\n" + SWIPL.replace(". ", ".\n"),
        "words": "\n".join(" ".join(words[i:i + 20]) for i in range(0, len(words), 20)) + "\n",
        "data.json": "[" + ",".join(str(row).replace("'", '"') for row in rows) + "]",
        "data.xml": f"<rows>{xml}</rows>", "page.html": html, "page.ps": f"%!PS\n{text}", "page.1": PAGE_1,
        "style.xsl": '<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:template '
                     'match="/rows"><out><xsl:for-each select="row"><xsl:sort select="k" data-type="number"/><r '
                     'k="{k}"><xsl:value-of select="concat(v, v/@a)"/></r></xsl:for-each></out></xsl:template>'
                     "</xsl:stylesheet>",
        "script.sql": schema, "picture.svg": f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 900">{shapes}'
                                             "</svg>",
        "graph.dot": "digraph g {\n" + edges + "}\n",
        "plot.gp": "set term svg\nset samples 20000\nplot " + ", ".join(f"sin({i} * x) + {i}" for i in range(1, 12)),
        "Doxyfile": "INPUT = SOURCE\nRECURSIVE = YES\nOUTPUT_DIRECTORY = SCRATCH/doxygen\n"
                    "EXTRACT_ALL = YES\nGENERATE_LATEX = NO\nHAVE_DOT = NO\nSOURCE_BROWSER = YES\n",
        "Main.java": JAVA, "nginx.conf": NGINX, "named.conf": NAMED, "memcache.py": MEMCACHE,
        "zone": "$TTL 60\n@ SOA ns.example. a.example. 1 60 60 60 60\n@ NS ns\nns A 127.0.0.1\n" + "".join(
            f"h{i} A 10.{i >> 8}.{i & 255}.1\n" for i in range(20000)),
        "queries": "".join(f"h{rng.randrange(20000)}.example\n" for _ in range(4000)),
        "server.js": f"require('http').createServer((q, s) => {{ const a = []; for (let i = 0; i < 200; i++) "
                     f"a.push({{i, b: 'x'.repeat(i)}}); s.end(JSON.stringify(a)); }}).listen({PORT}, '127.0.0.1');\n",
        "script-maria.sql": "CREATE DATABASE d; USE d; CREATE TABLE t(id INT AUTO_INCREMENT PRIMARY KEY, name "
                            "VARCHAR(40), x DOUBLE);\nBEGIN;\n" + inserts +
                            "COMMIT; CREATE INDEX i ON t(name); SELECT count(*) FROM t WHERE name LIKE 'name 1%'; "
                            "SELECT count(*) FROM (SELECT substr(name, 1, 7) p, avg(x) FROM t GROUP BY p) q;\n",
        "site/page.html": html[:20000], "site/page.php": f"<?php {PHP.replace('200000', '3000')} ?>",
    }
    (scratch / "site").mkdir(exist_ok=True)
    for name, content in files.items():
        (scratch / name).write_text(content.replace("SCRATCH", str(scratch)).replace("SOURCE\n", f"{SOURCE}\n"))
    scratch.chmod(0o755)
    make_repository(scratch / "repository")
    if shutil.which("gs"):
        subprocess.run(["gs", "-q", "-dNOPAUSE", "-dBATCH", "-sDEVICE=pdfwrite",
                        f"-sOutputFile={scratch}/page.pdf", f"{scratch}/page.ps"], check=False)


def make_repository(folder):
    """400 commits, each of which changes some of 50 files."""
    stream, rng = ["reset refs/heads/main\n"], random.Random(2)
    for commit in range(400):
        stream.append(f"commit refs/heads/main\ncommitter A <a@example.org> {1700000000 + commit} +0000\n"
                      f"data 2\nc\n")
        for _ in range(4):
            text = "".join(f"{line} {(line * 7919 + commit * rng.randrange(9)) % 65521}\n" for line in range(300))
            stream.append(f"M 100644 inline file{rng.randrange(50)}\ndata {len(text)}\n{text}\n")
    if shutil.which("git"):
        subprocess.run(["git", "init", "-q", "-b", "main", folder], check=True)
        subprocess.run(["git", "-C", folder, "fast-import", "--quiet"], input="".join(stream), text=True, check=True)


def shell(text, scratch, env=None):
    """What a command of the load prints; under the system's malloc."""
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return subprocess.run(["sh", "-c", text.replace("SCRATCH", str(scratch))], capture_output=True, text=True,
                          env=plain | (env or {}), timeout=300)


def in_session(leader):
    """The processes of a session."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.getsid(int(entry)) == leader:
                found.append(int(entry))
        except ProcessLookupError:
            pass
    return found


def fields(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def spent(leader):
    """CPU seconds and minor faults of a session's processes, and of the children for which they waited."""
    cpu = faults = 0
    for pid in in_session(leader):
        now = fields(pid)
        cpu += sum(map(int, now[11:15]))
        faults += int(now[7]) + int(now[8])
    return cpu / TICKS, faults


def memory(leader):
    """The PSS of a session, and the highest peak of one process, in KiB."""
    pss = peak = 0
    for pid in in_session(leader):
        pss += int(re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)[1])
        peak = max(peak, int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]))
    return pss, peak


class Failed(Exception):
    pass


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def serve(application, command, env, setup):
    """One sample of a server, and the digest of what the load printed."""
    if application.prepare:
        prepared = shell(application.prepare, setup.scratch)
        if prepared.returncode:
            raise Failed(f"prepare: {prepared.stderr.strip()[-200:]}")
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", PORT)) == 0:
            raise Failed(f"another process listens on port {PORT}; end it")
    server = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, start_new_session=True, cwd=setup.scratch)
    try:
        end = time.monotonic() + START_SECONDS
        while shell(application.ready, setup.scratch).returncode:
            if server.poll() is not None or time.monotonic() > end:
                raise Failed("did not start")
            time.sleep(0.1)
        cpu, faults = spent(server.pid)
        began = time.monotonic()
        out = shell(application.load, setup.scratch)
        took = time.monotonic() - began
        after = spent(server.pid)
        if out.returncode or server.poll() is not None:
            raise Failed(f"load ended by {out.returncode}, the server by {server.poll()}: {out.stderr.strip()[-200:]}")
        time.sleep(IDLE_SECONDS)
        idle, peak = memory(server.pid)
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            pass
        for pid in in_session(server.pid):
            os.kill(pid, signal.SIGKILL)
        server.wait()
    return {"wall_s": took, "cpu_s": after[0] - cpu, "faults": after[1] - faults, "peak_kib": peak,
            "idle_kib": idle}, digest(out.stdout.encode())


def batch(application, command, allocator, setup):
    """One sample of a program that ends, and the digest of its output."""
    line = [str(setup.bench_dir / "bench_measure"), "1", str(run.preload_of(application, allocator, setup) or "-"),
            *command]
    out, err = run.execute(line, run.environment(application, allocator), setup.timeout)
    measured = run.MEASURED.search(out)
    if not measured or measured[5] != "0":
        raise Failed(f"exit code {measured[5]}: {err.strip()[-200:]}" if measured else err.strip()[-200:])
    wall, user, system, peak, _, faults = map(int, measured.groups())
    written = application.result and (setup.scratch / application.result).read_bytes()
    result = written or out[:measured.start()].encode()
    return {"wall_s": wall / 1e9, "cpu_s": (user + system) / 1e6, "peak_kib": peak, "faults": faults}, digest(result)


def sample(application, command, allocator, setup, more=None):
    if application.load:
        env = run.environment(application, allocator, run.preload_of(application, allocator, setup)) | (more or {})
        return serve(application, command, env, setup)
    return batch(application, command, allocator, setup)


def check(application, command, allocator, setup):
    """The digest of the output; raises unless the dynamic linker bound malloc to the allocator."""
    expected = run.preload_of(application, allocator, setup) or setup.libc
    with tempfile.TemporaryDirectory(dir=setup.scratch) as folder:
        os.chmod(folder, 0o777)
        debug = {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": f"{folder}/ld"}
        if application.load:
            sample(application, command, allocator, setup, debug)
        else:
            run.execute(command, run.environment(application, allocator, run.preload_of(application, allocator, setup))
                        | debug, setup.timeout)
        bound = {Path(found).resolve() for path in Path(folder).iterdir()
                 for found in run.BINDING.findall(path.read_text(errors="replace"))}
    if expected not in bound:
        raise Failed(f"no process of it bound malloc to {expected}")
    return sample(application, command, allocator, setup)[1]


def checked(chosen, allocators, setup):
    """The applications whose malloc is each allocator's, and whose output is the same under all. Others are named."""
    good = []
    for application, command in chosen:
        outputs = {}
        for allocator in allocators:
            try:
                outputs[allocator.name] = check(application, command, allocator, setup)
            except (Failed, subprocess.TimeoutExpired, OSError) as error:
                outputs[allocator.name] = f"failed: {error}"
        if len(set(outputs.values())) > 1 or any(text.startswith("failed") for text in outputs.values()):
            print(f"{application.name}: {outputs}", file=sys.stderr)
        if not outputs[run.BASE].startswith("failed"):
            good.append((application, command, outputs[run.BASE]))
    return good


def take_samples(args, scratch):
    build = run.find_build(args.build)
    setup = run.Setup(build / "bench", scratch, run.libc_of(build / "bench"), "full", args.timeout)
    known = run.known_libraries(build)
    texts = args.allocators or [word for word in ["hakmem", run.BASE, *run.PEERS] if word == run.BASE or word in known]
    allocators = [run.parse_allocator(text, known) for text in texts]
    if run.BASE not in [allocator.name for allocator in allocators]:
        allocators.append(run.Allocator(run.BASE))
    write_inputs(scratch)
    chosen = []
    for application in BATCH + SERVERS:
        if re.search(args.programs, application.name):
            command = workloads.command_line(application, setup.bench_dir, scratch)
            if command:
                chosen.append((application, command))
            else:
                print(f"{application.name}: not installed, left out", file=sys.stderr)
    rows, rng = [], random.Random(args.seed)
    good = checked(chosen, allocators, setup)
    for repetition in range(args.repetitions):
        for application, command, expected in run.shuffled(good, rng):
            for position, allocator in enumerate(run.shuffled(allocators, rng)):
                row = {"repetition": repetition, "position": position, "workload": application.name,
                       "allocator": allocator.name, "status": "ok"}
                try:
                    found, output = sample(application, command, allocator, setup)
                    row |= found if output == expected else {"status": "another output"}
                except (Failed, subprocess.TimeoutExpired) as error:
                    row["status"] = str(error)
                rows.append(row)
    return rows


def read_arguments():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the programs and end")
    parser.add_argument("--programs", default="", metavar="REGEX", help="only programs so named")
    parser.add_argument("--allocators", nargs="+", metavar="A",
                        help="default: hakmem, system and all installed peers")
    parser.add_argument("-n", dest="repetitions", type=int, default=3, help="blocks of each program (default 3)")
    parser.add_argument("--csv", metavar="FILE", type=Path, help="write all samples")
    parser.add_argument("--png", metavar="FILE", type=Path, help="draw the CPU times (matplotlib)")
    parser.add_argument("--from", metavar="FILE", type=Path, dest="source", help="print the tables of an earlier --csv")
    parser.add_argument("--build", metavar="DIR", type=Path, help="Meson build directory")
    parser.add_argument("--seed", type=int, help="of the order of runs (default: random)")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one sample")
    return parser.parse_args()


def show(rows, args):
    for metric, unit, scale in [("cpu_s", "ms", 1000), ("peak_kib", "MiB", 1 / 1024), ("idle_kib", "MiB", 1 / 1024),
                                ("faults", "1000", 1 / 1000)]:
        if any(row.get(metric) for row in rows):
            print(tables.ratio_table(rows, metric, run.BASE, unit, scale))
    if args.png:
        tables.draw(rows, "cpu_s", run.BASE, args.png)
    failures = sorted({(row["workload"], row["allocator"], row["status"]) for row in rows if row["status"] != "ok"})
    for workload, allocator, status in failures:
        print(f"{workload} under {allocator} failed: {status}", file=sys.stderr)
    return 1 if failures else 0


def main():
    args = read_arguments()
    if args.list:
        for application in BATCH + SERVERS:
            print(f"{application.name:<16}{' '.join(application.command.split())[:100]}")
        return 0
    try:
        if args.source:
            rows = run.read_csv(args.source)
        else:
            with tempfile.TemporaryDirectory(prefix="hakmem-bench-") as scratch:
                rows = take_samples(args, Path(scratch))
        if args.csv and not args.source:
            run.write_csv(args.csv, rows)
        return show(rows, args)
    except (run.BenchError, tables.TableError, OSError) as error:
        print(f"applications.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
