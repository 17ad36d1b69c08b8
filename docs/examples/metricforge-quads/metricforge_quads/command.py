"""The command ``metricforge draw-comparisons``: its arguments; `drawing` does the work."""

import metricforge as mf


def arguments(parser):
    parser.add_argument("data", help="rows, as for metricforge learn")
    parser.add_argument("--label", metavar="COLUMN", required=True, help="the column with a class per row")
    parser.add_argument("-n", type=int, default=200, help="how many comparisons (default: 200)")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same comparisons (default: 0)")
    parser.add_argument("-o", "--out", metavar="FILE", required=True, help="where they go, for instance .csv")


COMMAND = mf.Command("draw comparisons of pairs of rows from labels", "metricforge_quads.drawing:run", arguments)
