"""Scores of a metric on held-out rows.

Only NumPy and scikit-learn are used, because the same text also runs in the environment of the peers.
"""

import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import euclidean_distances

SCORES = ("one", "five", "triplets", "ari")


def scores(to_training, among, embedding, y_training, y, triplets):
    """Return 1-NN error, 5-NN error, triplet accuracy and adjusted Rand index, in per cent.

    Parameters
    ----------
    to_training : (t, n) distances of the held-out rows to the training rows
    among : (t, t) distances between the held-out rows
    embedding : (t, r) coordinates of the held-out rows, or None: then there is no Rand index
    y_training, y : labels
    triplets : (m, 3) held-out rows, the first with the label of the second and not of the third
    """
    near = y_training[nearest(to_training, 5)]
    i, j, k = triplets.T
    right = among[i, j] < among[i, k]
    half = among[i, j] == among[i, k]  # a metric that sees no difference has no accuracy to show
    found = {
        "one": 100 * float(np.mean(near[:, 0] != y)),
        "five": 100 * float(np.mean(voted(near) != y)),
        "triplets": 100 * float(np.mean(right + 0.5 * half)),
        "ari": None,
    }
    if embedding is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fewer distinct rows than clusters
            clusters = KMeans(len(np.unique(y)), n_init=3, max_iter=100, random_state=0).fit_predict(embedding)
        found["ari"] = 100 * float(adjusted_rand_score(y, clusters))
    return found


def nearest(distances, k):
    """Return the columns of the k smallest entries of each row, smallest first; the earlier one of equals."""
    k = min(k, distances.shape[1])
    candidates = np.sort(np.argpartition(distances, k - 1, axis=1)[:, :k], axis=1)
    order = np.argsort(np.take_along_axis(distances, candidates, axis=1), axis=1, kind="stable")
    return np.take_along_axis(candidates, order, axis=1)


def voted(near):
    """Return the most frequent label of each row; of several, that of the nearest neighbour."""
    votes = (near[:, :, None] == near[:, None, :]).sum(axis=2)
    return near[np.arange(len(near)), votes.argmax(axis=1)]


def euclidean_scores(training, held_out, y_training, y, triplets):
    """Return the scores of Euclidean distance between coordinates."""
    centre = training.mean(axis=0)
    training, held_out = training - centre, held_out - centre
    to_training, among = euclidean_distances(held_out, training), euclidean_distances(held_out)
    return scores(to_training, among, held_out, y_training, y, triplets)
