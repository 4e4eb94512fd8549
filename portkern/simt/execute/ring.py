"""The ring of ``arithmetic=ring``: its primes, and how a number stands for an element."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

#: Draws a whole number below its argument.
Draw = Callable[[int], int]
#: Bits of the smaller prime and of the larger: two formulas that differ agree by chance with a
#: probability of 2^-60 at most, for each element that they are compared at.
_FLAT_BITS, _DEEP_BITS = 52, 63


@dataclass(frozen=True)
class Ring:
    """Complex numbers modulo ``p`` and modulo ``q``, primes of 4n + 3, of which q - 1 is a multiple
    of p. ``g`` and ``h`` have the order p modulo q: exp takes a + bi modulo p to g^a h^b modulo q.
    ``seed`` chooses the random functions that stand for those without laws."""

    p: int
    q: int
    g: int
    h: int
    seed: int

    @classmethod
    def drawn(cls, draw: Draw = secrets.randbelow) -> Ring:
        """A random one: a kernel that knew its primes could hide what it leaves out."""
        while True:
            p = 1 << (_FLAT_BITS - 1) | draw(1 << (_FLAT_BITS - 1)) | 3
            if not _is_prime(p, draw):
                continue
            for _ in range(2000):
                # An odd factor twice: q = 2 * odd * p + 1 is 3 modulo 4.
                factor = 2 * (draw(1 << (_DEEP_BITS - _FLAT_BITS - 2)) | 1)
                q = factor * p + 1
                if q.bit_length() > _DEEP_BITS - 2 and _is_prime(q, draw):
                    g, h = (_of_order(p, q, draw) for _ in range(2))
                    return cls(p, q, g, h, draw(1 << 62))

    def __str__(self) -> str:
        return f"{self.p},{self.q},{self.g},{self.h},{self.seed}"

    def deep(self, number: float) -> int:
        """The element modulo ``q`` that a finite number stands for."""
        exact = Fraction(number)
        e = exact.denominator.bit_length() - 1  # a power of two
        if e not in self._halves:
            self._halves[e] = pow(2, -e, self.q)
        return exact.numerator * self._halves[e] % self.q

    @cached_property
    def _halves(self) -> dict[int, int]:
        return {}


def _of_order(p: int, q: int, draw: Draw) -> int:
    while True:
        found = pow(2 + draw(q - 2), (q - 1) // p, q)
        if found != 1:
            return found


def _is_prime(n: int, draw: Draw) -> bool:
    """Miller and Rabin's test, wrong for a composite with a probability of 4^-24."""
    if any(math.gcd(n, small) > 1 for small in (2 * 3 * 5 * 7, 11 * 13 * 17 * 19 * 23)):
        return False
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for _ in range(24):
        x = pow(2 + draw(n - 3), odd, n)
        if x in (1, n - 1):
            continue
        if not any((x := x * x % n) == n - 1 for _ in range(twos - 1)):
            return False
    return True
