"""What ``metricforge draw-comparisons`` does."""

from metricforge.cli import write_json, write_line
from metricforge.tables import check_output, read, write
from metricforge.validation import whole_number

from .comparisons import Comparisons


def run(args):
    whole_number(args.n, "-n")
    whole_number(args.seed, "--seed", least=0)
    check_output(args.out)
    labels = read(args.data, extra=[args.label]).extra[args.label]
    drawn = Comparisons.from_labels(labels, n_comparisons=args.n, seed=args.seed)
    write(args.out, Comparisons.table_columns, drawn.quads)
    if args.json:
        write_json({"written": args.out, "comparisons": drawn.size})
    else:
        write_line(f"{args.out}: {drawn.size} comparisons")
