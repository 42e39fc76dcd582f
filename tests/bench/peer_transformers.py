"""peer_transformers.py KVREPLAY MODEL.gguf -- capture against transformers.

The opponent is eager attention with output_attentions, in float32 on the same
file, its rows written by h5py as f16 with gzip 4. Every run is a process of its
own, one thread each; memory is its ru_maxrss, loading included. Time is CPU
seconds, user + system, the write in and loading out: of our process less one at
T=1, and of the opponent from when its model is loaded and has seen one token,
since its loading varies by more than what is measured. The two files are
compared before anything is claimed.

ROUNDS (2) is how often each run is made; the lowest counts. SHORT=1 leaves out
T=8192. SPDX-License-Identifier: GPL-3.0-or-later
"""
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time

PREFILL, PROMPT, DECODED, PEER_DECODED = 1024, 256, 128, 32
N_ID, CPU_LIMIT_S = 49152, 180
ROUNDS = int(os.environ.get("ROUNDS", "2"))
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
TRANSFORMERS = "transformers eager, output_attentions"


# The opponent. It runs in a child, which alone imports what is large: a
# parent's memory would count as its child's.

def load(gguf):
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(1)
    folder, name = os.path.split(gguf)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32,
        attn_implementation="eager")
    return torch, model.eval()


def read_ids(torch, path):
    with open(path, encoding="ascii") as f:
        return torch.tensor([[int(word) for word in f.read().split()]])


def prefill_of(torch, model, ids, out):
    import h5py
    T = ids.shape[1]
    with torch.inference_mode():
        rows = model(ids, output_attentions=True, use_cache=True).attentions
    with h5py.File(out, "w") as f:
        for i, layer in enumerate(rows):
            f.create_dataset(
                f"layers/{i:02}/attention", data=layer[0].half().numpy(),
                chunks=(1, min(64, T), T), compression="gzip",
                compression_opts=4, shuffle=True)


def peer_prefill(gguf, ids_path, out):
    """Prints the CPU seconds of loading, and of the prefill."""
    torch, model = load(gguf)
    ids = read_ids(torch, ids_path)
    prefill_of(torch, model, ids[:, :1], out)
    loaded = time.process_time()
    prefill_of(torch, model, ids, out)
    print(loaded, time.process_time() - loaded)


def peer_decode(gguf, ids_path, _):
    """Prints the CPU seconds of the steps; the rows stay in memory."""
    torch, model = load(gguf)
    ids = read_ids(torch, ids_path)

    def cpu_of(n):
        start = time.process_time()
        with torch.inference_mode():
            model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False,
                min_new_tokens=n, max_new_tokens=n, pad_token_id=0,
                output_attentions=True, return_dict_in_generate=True)
        return time.process_time() - start

    cpu_of(1)  # the first call also sets things up
    print(min(cpu_of(1 + PEER_DECODED) - cpu_of(1) for _ in range(ROUNDS)))


def compare(ours, theirs, _):
    """Prints the largest difference between two files' attention."""
    import h5py
    import numpy as np
    worst = 0.0
    with h5py.File(ours) as a, h5py.File(theirs) as b:
        if list(a["layers"]) != list(b["layers"]):
            sys.exit("the files have different layers")
        for name in a["layers"]:
            x, y = (f["layers"][name]["attention"][...].astype("f4")
                    for f in (a, b))
            worst = max(worst, float(np.abs(x - y).max()))
    print(worst)


CHILDREN = {f.__name__: f for f in (peer_prefill, peer_decode, compare)}


# The race.

class Run:
    """A finished process: CPU seconds, peak bytes, standard output."""

    def __init__(self, args, limit_s=None):
        def limit():
            if limit_s:
                resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
        with tempfile.TemporaryFile("w+") as out:
            p = subprocess.Popen(
                args, stdout=out, preexec_fn=limit if limit_s else None,
                env={**os.environ, **{name: "1" for name in THREADS},
                     "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1",
                     "TRANSFORMERS_VERBOSITY": "error"})
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            self.text = out.read()
        self.ok = p.returncode == 0
        if not self.ok and not limit_s:
            sys.exit(f"{args[0]}: exit status {p.returncode}")
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.peak = usage.ru_maxrss * 1024


class Race:
    def __init__(self, program, model, folder):
        self.program, self.folder = program, folder
        self.model = os.path.abspath(model)

    def file(self, name):
        return os.path.join(self.folder, name)

    def ids(self, T):
        path = self.file(f"ids-{T}")
        draw = random.Random(4)
        with open(path, "w", encoding="ascii") as f:
            print(*(draw.randrange(N_ID) for _ in range(T)), file=f)
        return path

    def ours(self, T, *more, limit_s=None):
        return Run([self.program, "capture", "-m", self.model, "--ids",
                    self.ids(T), "--threads", "1", "-o",
                    self.file("ours.kvt.h5"), "--force", "-q", *more],
                   limit_s)

    def child(self, name, first, second, third="-"):
        return Run([sys.executable, __file__, name, first, second, third])

    def peer(self, T):
        return self.child("peer_prefill", self.model, self.ids(T),
                          self.file("theirs.h5"))


def in_turn(runs):
    """Every run, in turn, ROUNDS times: a list of rounds for each."""
    rounds = [[run() for run in runs] for _ in range(ROUNDS)]
    return list(zip(*rounds))


def cpu_s(runs):
    return min(r.cpu_s for r in runs)


def peak_mib(runs):
    return min(r.peak for r in runs) / 2**20


def report(figure, unit, ours, opponent, theirs, ratio, bar, ok):
    print(json.dumps({
        "figure": figure, "unit": unit, "ours": round(ours, 3),
        "opponent": opponent, "theirs": round(theirs, 3),
        "ratio": round(ratio, 3), "bar": bar, "pass": ok}), flush=True)


def prefill(race):
    before, after, peer = in_turn([
        lambda: race.ours(1), lambda: race.ours(PREFILL),
        lambda: race.peer(PREFILL)])
    differ = float(race.child("compare", race.file("ours.kvt.h5"),
                              race.file("theirs.h5")).text)
    if differ > 1e-3:  # two roundings to f16 are 4.9e-4 apart near 1
        sys.exit(f"the attention of the two files differs by {differ}")
    times = [[float(word) for word in r.text.split()] for r in peer]
    loading, theirs = (min(column) for column in zip(*times))
    report("load the model, one token", "CPU s", cpu_s(before), TRANSFORMERS,
           loading, loading / cpu_s(before), "none", True)
    ours = cpu_s(after) - cpu_s(before)
    report(f"prefill with recording, T={PREFILL}, write included", "CPU s",
           ours, TRANSFORMERS + ", h5py gzip 4", theirs, theirs / ours,
           ">= 2, stretch 3", theirs >= 2 * ours)
    ours, theirs = peak_mib(after), peak_mib(peer)
    report("peak memory of it, model included", "MiB", ours,
           TRANSFORMERS + ", h5py gzip 4", theirs, ours / theirs,
           "<= 1/3", 3 * ours <= theirs)


def decode(race):
    before, after = in_turn([
        lambda: race.ours(PROMPT, "-n", "0"),
        lambda: race.ours(PROMPT, "-n", str(DECODED), "--ignore-eos")])
    ours = DECODED / (cpu_s(after) - cpu_s(before))
    theirs = PEER_DECODED / float(
        race.child("peer_decode", race.model, race.ids(PROMPT)).text)
    report(f"decode with recording after {PROMPT} tokens, write included",
           "tokens per CPU s", ours, "transformers generate, "
           "output_attentions kept in memory, not written", theirs,
           ours / theirs, ">= 30 tokens per CPU s, stretch 60", ours >= 30)


def stored_qk(race, T, bar):
    run = race.ours(T, "--store", "qk", limit_s=CPU_LIMIT_S)
    if not run.ok:
        print(f"--store qk at T={T}: not within {CPU_LIMIT_S} CPU s",
              file=sys.stderr)
        return
    report(f"peak memory of capture --store qk, T={T}", "GB",
           run.peak / 1e9, "none", 0, 0, bar, run.peak < 1.5e9)
    report(f"capture --store qk, T={T}", "CPU s", run.cpu_s, "none", 0, 0,
           "none", True)


def main(program, model):
    with tempfile.TemporaryDirectory() as folder:
        race = Race(program, model, folder)
        prefill(race)
        decode(race)
        stored_qk(race, 2048, "< 1.5")
        if os.environ.get("SHORT") != "1":
            stored_qk(race, 8192, "< 1.5")


if len(sys.argv) == 5 and sys.argv[1] in CHILDREN:
    CHILDREN[sys.argv[1]](*sys.argv[2:])
elif len(sys.argv) == 3:
    main(*sys.argv[1:])
else:
    sys.exit("usage: peer_transformers.py KVREPLAY MODEL.gguf")
