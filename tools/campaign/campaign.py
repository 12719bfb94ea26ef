#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Length: one program: workers, judging beside them, and the replay of a line.
"""Calls real kernels on random honest inputs and has every call judged: none may be refused.

    campaign.py --program build/release/bin/goldenrule                  every peer that imports
    campaign.py --program ... --peers fla_,naive_ --calls 100 --first 0
    campaign.py --program ... --replay 'peer=fla_chunk_gdn seed=17'

A worker process for each peer draws its calls (draw.py), runs them (peers.py) and writes captures;
the judging runs beside it in batches, in as many processes as there are cores. A capture that
passes is deleted; one that is refused or mistrusted stays in --out. The end is a table with the
verdicts of each peer, how much of its budget the worst element of a call takes, and a line for each
refusal that --replay draws, runs, judges and explains again. Exit code 1: an honest call was
refused; 2: nothing was judged.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python")]
PASSED = ("EXACT", "WITHIN_BUDGET")
VERDICTS = PASSED + ("MISTRUSTED", "SKIPPED", "OUT_OF_BUDGET", "ERROR")
# What the report of a call without one has beside the verdict and the reason.
NO_CASE = {"reason": "", "contract": "", "absent": [], "nonfinite_inputs": 0, "tensors": []}
BATCH = 24
FAILURES_IN_A_ROW = 4  # after so many a worker gives its peer up


def seeds(options, share=1.0):
    """Of this machine: every N-th call of a peer from the I-th on (--shard I/N)."""
    part, parts = map(int, options.shard.split("/"))
    end = options.first + max(1, round(options.calls * share))
    return range(options.first + part - 1, end, parts)


# ---- worker: one peer ---------------------------------------------------------------------------


def fewer_configurations(count):
    """Triton's autotuner tries `count` of the configurations that a kernel lists, not all of them:
    compiling them would take most of the time. Which ones follows from the kernel's name.
    """
    try:
        from triton.runtime import autotuner
    except ImportError:
        return
    original = autotuner.Autotuner.__init__

    def initialize(self, fn, arg_names, configs, *rest, **named):
        name = getattr(fn, "__name__", None) or getattr(getattr(fn, "fn", None), "__name__", "")
        if configs and len(configs) > count:
            configs = random.Random(name).sample(list(configs), count)
        original(self, fn, arg_names, configs, *rest, **named)

    autotuner.Autotuner.__init__ = initialize


def run_call(peer, kernel, seed, path):
    """Draws and runs one call and writes its capture. Returns the call."""
    import torch
    from draw import draw_call
    from goldenrule_capture import write_capture
    call = draw_call(peer.name, seed, peer.variants, peer.limits)
    device = "cuda" if peer.gpu else "cpu"
    outputs = peer.run(kernel, call, {name: tensor.to(device, copy=True)
                                      for name, tensor in call.inputs.items()})
    if peer.gpu:
        torch.cuda.synchronize()
    partial = path.with_suffix(".writing")
    write_capture(partial, op=call.op, mode=call.mode, convention=call.convention,
                  inputs=call.inputs, outputs=outputs, source=call.source, contract=call.contract)
    partial.rename(path)
    return call


def worker(options):
    """Prints one JSON line for each thing that the campaign must know of this peer."""
    from peers import PEERS, load
    peer = PEERS[options.worker]
    folder = pathlib.Path(options.out) / peer.name
    folder.mkdir(parents=True, exist_ok=True)

    def tell(**what):
        print(json.dumps(what), flush=True)

    fewer_configurations(options.configurations)
    started = time.monotonic()
    try:
        kernel = load(peer)
    except Exception as error:  # a peer may fail to import in its own ways
        return tell(absent=f"{type(error).__name__}: {error}"[:300])
    tell(imported=time.monotonic() - started)
    failures = 0
    for seed in seeds(options, peer.share):
        if options.deadline and time.time() > options.deadline:
            return tell(stopped="out of time")
        try:
            run_call(peer, kernel, seed, folder / f"{seed}.h5")
            failures = 0
        except Exception as error:  # a call may fail in its own ways too
            failures += 1
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{pathlib.Path(last.filename).name}:{last.lineno}"
            tell(failed=seed, error=f"{type(error).__name__}: {error} ({where})"[:400])
            if failures >= FAILURES_IN_A_ROW:
                return tell(stopped=f"{failures} calls in a row raised")
    return tell(finished=time.monotonic() - started)


# ---- judging ------------------------------------------------------------------------------------


def judge(options, batch, number):
    """[(path, case of the JSON report)] of a batch of captures."""
    report = pathlib.Path(options.out) / f"report{number}.json"
    command = [options.program, "check", "--no-explain", "--json", str(report)]
    command += ["--contract", options.contract] if options.contract else []
    done = subprocess.run(command + [str(path) for path in batch], capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        cases = json.loads(report.read_text())["cases"]
        report.unlink()
    except (OSError, ValueError, KeyError):
        cases = []
    verdicts = {case["file"]: case for case in cases}
    if all(str(path) in verdicts for path in batch):
        return [(path, verdicts[str(path)]) for path in batch]
    if len(batch) > 1:  # the program ended without a report: which capture is it?
        return [pair for path in batch for pair in judge(options, [path], f"{number}.{path.stem}")]
    reason = f"exit code {done.returncode}, no report: {done.stderr.strip()[-300:]}"
    return [(batch[0], {"verdict": "ERROR", "reason": reason, "tensors": [], "contract": ""})]


class Tally:
    """What is known of one peer."""

    def __init__(self):
        self.counts = dict.fromkeys(VERDICTS, 0)
        self.ratios = {}  # (contract, tensor) -> max err/budget of each call
        self.kept = []  # lines of calls that did not pass
        self.failed = []
        self.cases = []  # of the JSON report
        self.note = ""

    def add(self, line, case):
        verdict = case["verdict"]
        self.cases.append({**NO_CASE, **case, "file": line, "case": "",
                           "replay": f"campaign.py --replay '{line}'"})
        self.counts[verdict] = self.counts.get(verdict, 0) + 1
        for tensor in case["tensors"]:
            ratio = tensor.get("max_ratio")
            key = (case["contract"], tensor["name"])
            ratio = float("inf") if ratio is None else float(ratio)
            self.ratios.setdefault(key, []).append(ratio)
        if verdict in PASSED:
            return
        worst = [f"{t['name']} {t['verdict']} {t.get('max_ratio')} at "
                 f"{t.get('worst', {}).get('coordinates')}, {t.get('out_of_budget')} of "
                 f"{t.get('compared')}" for t in case["tensors"] if t["verdict"] == verdict]
        self.kept.append((verdict, line, case.get("contract", ""),
                          case.get("reason", "") or "; ".join(worst)))


def keep(options, path, room):
    """Compresses a capture that did not pass, while there is room. Returns the bytes it took."""
    if room < path.stat().st_size // 4:
        path.unlink()
        return 0
    folder = pathlib.Path(options.out) / "kept"
    folder.mkdir(exist_ok=True)
    target = folder / f"{path.parent.name}_{path.name}"
    path.rename(target)
    if shutil.which("xz"):
        subprocess.run(["xz", "-q", "-T1", "-3", str(target)], check=False)
        target = next(iter(folder.glob(target.name + "*")))
    size = target.stat().st_size
    if size > room:
        target.unlink()
        return 0
    return size


# ---- the campaign -------------------------------------------------------------------------------


def start(options, peer):
    command = [sys.executable, str(HERE / "campaign.py"), "--worker", peer.name, "--out",
               options.out, "--first", str(options.first), "--calls", str(options.calls), "--shard",
               options.shard, "--configurations", str(options.configurations), "--deadline",
               str(options.deadline)]
    log = open(pathlib.Path(options.out) / f"{peer.name}.log", "w")
    environment = {**os.environ, **peer.environment}
    environment.setdefault("OMP_NUM_THREADS", "2")
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True,
                            env=environment)


def campaign(options, peers):
    out = pathlib.Path(options.out)
    tallies = {peer.name: Tally() for peer in peers}
    waiting, running, judging = list(peers), {}, {}
    batches, room = 0, options.keep_bytes
    pool = concurrent.futures.ThreadPoolExecutor(options.jobs)
    while waiting or running or judging:
        while waiting and len(running) < options.workers:
            peer = waiting.pop(0)
            running[peer.name] = start(options, peer)
            os.set_blocking(running[peer.name].stdout.fileno(), False)
        for name, process in list(running.items()):
            late = options.deadline and time.time() > options.deadline + 15
            if late:
                process.kill()
            over = process.poll() is not None
            listen(name, process, tallies[name])
            if over:
                del running[name]
                listen(name, process, tallies[name])
                if late:
                    tallies[name].note += "killed, out of time; "
                elif process.returncode:
                    tallies[name].note += f"worker ended with {process.returncode}; "
        taken = {path for batch in judging.values() for path in batch}
        ready = [path for name in tallies for path in sorted((out / name).glob("*.h5"))
                 if path not in taken]
        while ready and len(judging) < 2 * options.jobs:
            size = max(1, min(BATCH, -(-len(ready) // options.jobs)))
            batch, ready = ready[:size], ready[size:]
            judging[pool.submit(judge, options, batch, batches)] = batch
            batches += 1
        for future in [future for future in judging if future.done()]:
            for path, case in future.result():
                name = path.parent.name
                tallies[name].add(f"peer={name} seed={path.stem}", case)
                if case["verdict"] in PASSED:
                    path.unlink()
                else:
                    room -= keep(options, path, room)
            del judging[future]
        time.sleep(0.05)
    pool.shutdown()
    return tallies


def listen(name, process, tally):
    for line in iter(process.stdout.readline, ""):
        try:
            what = json.loads(line)
        except ValueError:
            continue
        if "absent" in what:
            tally.note = what["absent"]
        if "stopped" in what:
            tally.note += what["stopped"] + "; "
        if "failed" in what:
            tally.failed.append((f"peer={name} seed={what['failed']}", what["error"]))
        if "finished" in what:
            tally.note += f"{what['finished']:.0f} s; "


def table(tallies):
    lines = [f"{'peer':24} {'calls':>6} " + " ".join(f"{v:>13}" for v in VERDICTS) + "   note"]
    total = dict.fromkeys(VERDICTS, 0)
    for name, tally in tallies.items():
        calls = sum(tally.counts.values())
        for verdict in VERDICTS:
            total[verdict] += tally.counts[verdict]
        failed = f"{len(tally.failed)} calls raised; " if tally.failed else ""
        lines.append(f"{name:24} {calls:6} "
                     + " ".join(f"{tally.counts[v]:13}" for v in VERDICTS)
                     + f"   {failed}{tally.note}".rstrip("; "))
    lines.append(f"{'all':24} {sum(total.values()):6} "
                 + " ".join(f"{total[v]:13}" for v in VERDICTS))
    lines += ["", f"{'peer':24} {'contract':22} {'tensor':20} {'calls':>6} {'median':>8} "
                  f"{'90 %':>8} {'largest':>8}   of max err/budget of a call"]
    for name, tally in tallies.items():
        for (contract, tensor), ratios in sorted(tally.ratios.items()):
            ratios = sorted(ratios)
            lines.append(f"{name:24} {contract:22} {tensor:20} {len(ratios):6} "
                         f"{statistics.median(ratios):8.3g} {ratios[len(ratios) * 9 // 10]:8.3g} "
                         f"{ratios[-1]:8.3g}")
    for name, tally in tallies.items():
        for verdict, line, contract, reason in tally.kept:
            lines.append(f"{verdict}: --replay '{line}'   {contract} {reason}")
        for line, error in tally.failed[:3]:
            lines.append(f"RAISED: --replay '{line}'   {error}")
    return "\n".join(lines)


def report(options, peers, tallies, version):
    """The verdicts as a JSON report of `goldenrule check`, a share of a run where this machine has
    one, so that `goldenrule merge` puts those of many machines together. A call that raised was
    not judged."""
    part, parts = map(int, options.shard.split("/"))
    names = [peer.name for peer in peers]
    run = json.dumps([names, options.first, options.calls, options.contract, options.configurations])
    cases = [case for tally in tallies.values() for case in tally.cases]
    cases += [{**NO_CASE, "file": line, "verdict": "SKIPPED", "reason": f"the call raised {error}"}
              for tally in tallies.values() for line, error in tally.failed]
    items = sum(max(1, round(options.calls * peer.share)) for peer in peers)
    return {"runs": [{"command": "check", "version": version,
                      "digest": hashlib.sha256(run.encode()).hexdigest(), "items": items,
                      "shards": parts, "have": [part]}],
            "cases": cases}


def write_report(options, peers, tallies):
    version = subprocess.run([options.program, "--version"], capture_output=True, text=True,
                             check=True).stdout.split()[-1]
    pathlib.Path(options.json).write_text(
        json.dumps(report(options, peers, tallies, version), indent=1) + "\n")


def share_of(text):
    if not re.fullmatch(r"[1-9]\d{0,8}/[1-9]\d{0,8}", text) or int(text.split("/")[0]) > int(
            text.split("/")[1]):
        raise argparse.ArgumentTypeError(f"expected I/N with 1 <= I <= N, actual {text!r}")
    return text


def replay(options, peers, load):
    """Draws, runs, judges and explains one call; its capture stays in --out."""
    found = re.fullmatch(r"peer=(\w+) seed=(\d+)", options.replay.strip())
    peer = found and peers.get(found[1])
    if not peer:
        sys.exit(f"--replay: expected 'peer=NAME seed=N', actual {options.replay!r}")
    os.environ.update(peer.environment)
    fewer_configurations(options.configurations)
    pathlib.Path(options.out).mkdir(parents=True, exist_ok=True)
    path = pathlib.Path(options.out) / f"{peer.name}_{found[2]}.h5"
    call = run_call(peer, load(peer), int(found[2]), path)
    print(f"{path}\n  {call.source}\n  variant {call.variant}", flush=True)
    command = [options.program, "check", str(path)]
    command += ["--contract", options.contract] if options.contract else []
    return subprocess.run(command).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/bin/goldenrule")
    parser.add_argument("--library", help="libgoldenrule_gpu_shared.so, for this project's kernels")
    parser.add_argument("--peers", default="", help="names or their beginnings, by commas")
    parser.add_argument("--calls", type=int, default=100, help="of each peer")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--contract", default="", help="judge by this one, not by the default")
    parser.add_argument("--out", default="campaign_out")
    parser.add_argument("--workers", type=int, default=0, help="peers that run at a time")
    parser.add_argument("--jobs", type=int, default=0, help="judging processes")
    parser.add_argument("--configurations", type=int, default=2,
                        help="autotuner configurations of each Triton kernel")
    parser.add_argument("--seconds", type=float, default=0, help="end after so many")
    parser.add_argument("--keep-bytes", type=int, default=12 << 20,
                        help="of captures that did not pass, compressed")
    parser.add_argument("--json", help="write the verdicts here, as `goldenrule merge` takes them")
    parser.add_argument("--shard", type=share_of, default="1/1", metavar="I/N",
                        help="this machine's part of the calls")
    parser.add_argument("--list", action="store_true", help="list the peers")
    parser.add_argument("--replay", metavar="'peer=NAME seed=N'")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()

    if options.library:
        os.environ["GOLDENRULE_GPU_LIBRARY"] = os.path.abspath(options.library)
    if options.worker:
        worker(options)
        return 0
    try:
        from peers import PEERS, load
    except ImportError as error:
        print(f"SKIPPED: {error}")
        return 2
    if options.replay:
        return replay(options, PEERS, load)
    wanted = [name for name in options.peers.split(",") if name]
    peers = [peer for name, peer in PEERS.items()
             if not wanted or any(name.startswith(w) for w in wanted)]
    if options.list:
        print("\n".join(f"{p.name:24} {len(p.variants):5} variants   {p.function or 'own library'}"
                        for p in peers))
        return 0
    options.jobs = options.jobs or os.cpu_count()
    options.workers = options.workers or os.cpu_count()
    options.deadline = time.time() + options.seconds if options.seconds else 0
    pathlib.Path(options.out).mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    tallies = campaign(options, peers)
    print(table(tallies))
    print(f"seeds from {options.first} on, {time.monotonic() - started:.0f} s")
    if options.json:
        write_report(options, peers, tallies)
    judged = sum(sum(tally.counts.values()) for tally in tallies.values())
    refused = any(tally.counts["OUT_OF_BUDGET"] + tally.counts["ERROR"]
                  for tally in tallies.values())
    return 1 if refused else 0 if judged else 2


if __name__ == "__main__":
    sys.exit(main())
