from __future__ import annotations
import numpy as np
from .pairs import hinge

OUTER = 10.0

class Objective:
    def __init__(self, Phi, pairs, lam, logistic=False, compiled=None, outer_scale=OUTER):
        self.Phi, self.pairs, self.lam, self.logistic = Phi, pairs, lam, logistic
        self.offset = (1.0 if logistic else 2.0) - pairs.plus
        self.compiled = pairs.count > 40000 if compiled is None else compiled
        self.n_eval = 0
        self.slope = 1.0
        self.os = outer_scale

    def outer(self, mu):
        def f(rows, s):
            x = self.offset[rows] + s
            if self.logistic:
                return np.logaddexp(0, x), 1 / (1 + np.exp(-x))
            p, a = hinge(x, self.os * mu)
            return self.slope * p, self.slope * a
        return f

    def data(self, Y, h, mu):
        self.n_eval += 1
        if self.compiled:
            from . import loops
            Yt = np.ascontiguousarray(Y.T); Gt = np.zeros_like(Yt)
            v, s = loops.grouped(Yt, self.pairs.group, self.pairs.same, self.offset, h, mu, 0.0 if self.logistic else self.os * mu, self.slope, 0, len(Y), Gt)
            return v, s, Gt.T
        G = np.zeros_like(Y); value = slope = 0.0
        for rows, cols, v, C in self.pairs.blocks(Y, h, mu, self.outer(mu)):
            value += v
            r, c = C.sum(1), C.sum(0)
            slope -= r.sum()
            G[rows] += 2 * (r[:, None] * Y[rows] - C @ Y[cols])
            G[cols] += 2 * (c[:, None] * Y[cols] - C.T @ Y[rows])
        return value, slope, G

    def __call__(self, x, r, mu):
        L, h = x[:-1].reshape(-1, r), x[-1]
        v, s, G = self.data(self.Phi @ L, h, mu)
        g = np.empty_like(x)
        g[:-1] = (self.Phi.T @ G + 2 * self.lam * L).ravel(); g[-1] = s
        return v + self.lam * float(np.vdot(L, L)), g

    def exact(self, L, h):
        keep, self.slope = self.slope, 1.0
        try:
            return self._exact(L, h)
        finally:
            self.slope = keep

    def _exact(self, L, h):
        return self.data(self.Phi @ L, h, 1e-12)[0] + self.lam * float(np.vdot(L, L))

    def dual(self, L, h, mu):
        """lower bound, M"""
        Y = self.Phi @ L
        P = N = 0.0
        if 1:
            for rows, cols, v, C in self.pairs.blocks(Y, h, mu, self.outer(mu)):
                P += np.maximum(C, 0).sum(); N -= np.minimum(C, 0).sum()
        theta = min(1.0, N / P) if P > 0 else 1.0
        m = self.Phi.shape[1]
        R = np.zeros((m, m)); deg = np.zeros(len(Y)); top = np.zeros(len(Y))
        for rows, cols, v, C in self.pairs.blocks(Y, h, mu, self.outer(mu)):
            C = np.where(C > 0, theta * C, C)
            top[rows] = np.abs(C).max(1)
            deg[rows] += C.sum(1); deg[cols] += C.sum(0)
            R += self.Phi[rows].T @ (C @ self.Phi[cols])
        M = self.Phi.T @ (deg[:, None] * self.Phi) - R - R.T
        w, V = np.linalg.eigh(M)
        c = 1.0 if w[0] >= -self.lam else self.lam / -w[0]
        def bnd(c):
          a = c * top
          if self.logistic:
              a = np.maximum(a, 1 / (1 + np.exp(-self.offset)))
              from scipy.special import entr
              bound = (a * self.offset + entr(a) + entr(1 - a)).sum()
          else:
              a = np.where(self.offset > 0, 1.0, a)
              bound = (a * self.offset).sum()
          return bound + c * (theta * P + N)
        self.top = top.max()
        return bnd(c), w, V, bnd(1.0)
