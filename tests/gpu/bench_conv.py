#!/usr/bin/env python3
"""Times cuDNN, through PyTorch, on the layers that `sparsertc bench --op=conv2d` has timed, and compares.

    sparsertc bench --device=gpu --op=conv2d --set=gpu_conv_set.csv --csv=ours.csv
    python3 bench_conv.py ours.csv --csv=cudnn.csv

The filters are dense and of the same shape (layers of one shape are timed once), cudnn.benchmark chooses
the algorithm; fp32 without TF32, TF32, and fp16, each in NCHW and in channels_last, of which the table
takes the faster. As in `sparsertc bench`: graphs of 20 launches, medians of the rounds, warm caches,
contenders taking turns. --times takes them from the CSV of an earlier run instead.

Without PyTorch or without a GPU it says so and ends with 0.
"""
import argparse
import csv
import math
import pathlib
import statistics
import sys

LAUNCHES = 20
MODES = ("fp32", "tf32", "fp16")
LAYOUTS = ("nchw", "channels_last")
# A result that is further off than this, relative to the largest element, is wrong in every mode.
WORST_ERROR = 0.02
FIELDS = ("conv", "m", "k", "mode", "layout", "time_us", "time_min_us", "time_max_us", "error")


def geometry(words):
    """The words of --conv as a dictionary; pairs as (height, width)."""
    found = {"pad": (0, 0), "stride": (1, 1), "dilation": (1, 1), "groups": 1}
    for item in words.split(","):
        word, _, value = item.partition("=")
        if word in ("pad", "stride", "dilation"):
            numbers = [int(n) for n in value.split("x")]
            found[word] = (numbers[0], numbers[-1])
        elif word in ("N", "H", "W", "C", "R", "S", "groups"):
            found[word] = int(value)
        elif word != "taps":
            sys.exit(f'bench_conv.py: "{words}": {word} has no counterpart in conv2d')
    for word in "NHWRS":
        if word not in found:
            sys.exit(f'bench_conv.py: "{words}": {word} is missing')
    return found


def shape_of(row):
    return row["conv"], int(row["m"]), int(row["k"])


class Contender:
    """One mode and layout of one shape: a graph of launches."""

    def __init__(self, torch, mode, layout, images, filters, reference, options):
        self.torch, self.mode, self.layout = torch, mode, layout
        torch.backends.cudnn.allow_tf32 = mode == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = mode == "tf32"
        form = torch.channels_last if layout == "channels_last" else torch.contiguous_format
        dtype = torch.float16 if mode == "fp16" else torch.float32
        self.images = images.to(dtype).contiguous(memory_format=form)
        self.filters = filters.to(dtype).contiguous(memory_format=form)
        self.options = options
        # cuDNN searches in these calls, outside of the graph.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                result = self.convolve()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self.error = ((result.double() - reference).abs().max() / reference.abs().max()).item()
        if not self.error <= WORST_ERROR:
            raise RuntimeError(f"the result is off by {self.error:.2g}")
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for _ in range(LAUNCHES):
                self.convolve()
        self.start = torch.cuda.Event(enable_timing=True)
        self.end = torch.cuda.Event(enable_timing=True)
        self.samples = []

    def convolve(self):
        return self.torch.nn.functional.conv2d(self.images, self.filters, **self.options)

    def sample(self):
        self.graph.replay()
        self.start.record()
        self.graph.replay()
        self.end.record()
        self.end.synchronize()
        self.samples.append(self.start.elapsed_time(self.end) * 1000 / LAUNCHES)


def measure(torch, shape, rounds):
    """Rows of FIELDS, one for each mode and layout that cuDNN runs."""
    words, m, k = shape
    conv = geometry(words)
    channels = k // (conv["R"] * conv["S"])
    options = {"padding": conv["pad"], "stride": conv["stride"], "dilation": conv["dilation"],
               "groups": conv["groups"]}
    torch.manual_seed(1)
    images = 2 * torch.rand(conv["N"], channels, conv["H"], conv["W"], device="cuda") - 1
    filters = 2 * torch.rand(m, channels // conv["groups"], conv["R"], conv["S"], device="cuda") - 1
    reference = torch.nn.functional.conv2d(images.double(), filters.double(), **options)
    contenders = []
    for mode in MODES:
        for layout in LAYOUTS:
            try:
                contenders.append(Contender(torch, mode, layout, images, filters, reference, options))
            except RuntimeError as error:
                print(f"bench_conv.py: {words}: {mode}, {layout}: left out: {error}", file=sys.stderr)
    for _ in range(rounds):
        for contender in contenders:
            contender.sample()
    return [dict(zip(FIELDS, (words, m, k, one.mode, one.layout, f"{statistics.median(one.samples):.3f}",
                              f"{min(one.samples):.3f}", f"{max(one.samples):.3f}", f"{one.error:.3g}")))
            for one in contenders]


def measure_all(shapes, rounds):
    """The rows of all shapes and what ran them; nothing where it cannot be measured here."""
    try:
        import torch
    except ImportError:
        print("SKIPPED: no PyTorch")
        return None
    if not torch.cuda.is_available():
        print("SKIPPED: no GPU that PyTorch can use")
        return None
    torch.backends.cudnn.benchmark = True
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN "
          f"{torch.backends.cudnn.version()}, cudnn.benchmark; graphs of {LAUNCHES} launches, medians of "
          f"{rounds} rounds, warm")
    rows = []
    with torch.no_grad():
        for shape in shapes:
            rows += measure(torch, shape, rounds)
    return rows


def name_of(row):
    name = row["matrix"]
    folders = pathlib.PurePosixPath(name).parts[-3:]
    for ending in (".gz", ".smtx", ".npy"):
        folders = (*folders[:-1], folders[-1].removesuffix(ending))
    text = "/".join(folders)
    return text if len(text) <= 60 else "~" + text[-59:]


def print_table(ours, times):
    fastest = {}  # by shape and mode
    for row in times:
        key = shape_of(row), row["mode"]
        if key not in fastest or float(row["time_us"]) < float(fastest[key]["time_us"]):
            fastest[key] = row
    print(f"{'layer':<60} {'M x K':>9} {'N':>2} {'zeros':>7} {'ours us':>9} "
          + " ".join(f"{'cuDNN ' + mode:>12}" for mode in MODES)
          + "".join(f" {'x ' + mode:>7}" for mode in MODES))
    groups = {}
    for row in ours:
        images = geometry(row["conv"])["N"]
        head = f"{name_of(row):<60} {row['m'] + 'x' + row['k']:>9} {images:>2} {100 * float(row['sparsity']):>6.2f}%"
        if row["failure"] or not row["time_us"]:
            print(f"{head} failed: {row['failure']}")
            continue
        ratios = {}
        cells = ""
        for mode in MODES:
            best = fastest.get((shape_of(row), mode))
            if best:
                ratios[mode] = float(best["time_us"]) / float(row["time_us"])
            cells += f" {float(best['time_us']):>10.2f} {best['layout'][0]}" if best else f" {'-':>12}"
        for mode in MODES:
            cells += f" {ratios[mode]:>7.2f}" if mode in ratios else f" {'-':>7}"
        print(f"{head} {float(row['time_us']):>9.2f}{cells}")
        for group in (row["nominal_sparsity"], "all"):
            groups.setdefault(group, []).append(ratios)
    print("\nn: nchw, c: channels_last\ngeometric means of the speed-up")
    print(f"{'zeros':>6} {'cases':>6}" + "".join(f"  {'over cuDNN ' + mode:<28}" for mode in MODES))
    for group in sorted(groups, key=lambda name: (name == "all", name)):
        line = f"{group if group == 'all' else format(100 * float(group), 'g') + '%' if group else '-':>6}"
        line += f" {len(groups[group]):>6}"
        for mode in MODES:
            known = [ratios[mode] for ratios in groups[group] if mode in ratios]
            text = "-"
            if known:
                mean = math.exp(sum(map(math.log, known)) / len(known))
                text = f"{mean:.2f} (least {min(known):.2f}, {sum(r < 1 for r in known)} slower)"
            line += f"  {text:<28}"
        print(line.rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("ours", help="what `sparsertc bench --device=gpu --op=conv2d --csv=` wrote")
    parser.add_argument("--csv", help="where cuDNN's times go, all modes and layouts")
    parser.add_argument("--times", help="such a file of an earlier run, instead of measuring")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with open(options.ours, newline="") as file:
        ours = list(csv.DictReader(file))
    if not ours or "conv" not in ours[0]:
        sys.exit(f"{options.ours}: no times of convolutions: the column conv is missing")
    measured = [row for row in ours if row["m"] != "0"]  # of the others not even the shape is known
    if options.times:
        with open(options.times, newline="") as file:
            times = list(csv.DictReader(file))
    else:
        times = measure_all(list(dict.fromkeys(map(shape_of, measured))), options.rounds)
    if times is None:
        return
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(times)
    print_table(ours, [{**row, "m": str(row["m"]), "k": str(row["k"])} for row in times])


if __name__ == "__main__":
    main()
