"""The cones other than α >= 0: diagonal dominance as in the paper, changes of basis, positive semidefiniteness."""
