"""Verifies and makes Ed25519 signatures (RFC 8032, section 5.1) in Python, for standard libraries
that cannot.

Verification is of public values, which need not take the same time for all inputs. Signing does not
either: only for builders, on machines where nobody else measures it.
"""

from __future__ import annotations

import hashlib

_P = 2 ** 255 - 19
_L = 2 ** 252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _P - 2, _P) % _P
_ROOT_OF_MINUS_1 = pow(2, (_P - 1) // 4, _P)

Point = tuple  # (X, Y, Z, T) with x = X/Z, y = Y/Z, x*y = T/Z
_IDENTITY = (0, 1, 1, 0)


def _add(p: Point, q: Point) -> Point:
    a = (p[1] - p[0]) * (q[1] - q[0]) % _P
    b = (p[1] + p[0]) * (q[1] + q[0]) % _P
    c = 2 * p[3] * q[3] * _D % _P
    d = 2 * p[2] * q[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _double(p: Point) -> Point:
    a, b, c = p[0] * p[0] % _P, p[1] * p[1] % _P, 2 * p[2] * p[2] % _P
    h = a + b
    e = h - (p[0] + p[1]) ** 2 % _P
    g = a - b
    f = c + g
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _multiply(scalar: int, point: Point) -> Point:
    table = [_IDENTITY]
    for _ in range(15):
        table.append(_add(table[-1], point))
    result = _IDENTITY
    for shift in range((max(scalar.bit_length(), 1) - 1) // 4 * 4, -4, -4):
        for _ in range(4):
            result = _double(result)
        result = _add(result, table[scalar >> shift & 15])
    return result


def _is_equal(p: Point, q: Point) -> bool:
    return (p[0] * q[2] - q[0] * p[2]) % _P == 0 and (p[1] * q[2] - q[1] * p[2]) % _P == 0


def _point(data: bytes) -> Point | None:
    """Decodes a point (5.1.3)."""
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & ((1 << 255) - 1)
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, _P - 2, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT_OF_MINUS_1 % _P
    if (x * x - square) % _P or not x and sign:
        return None
    if x & 1 != sign:
        x = _P - x
    return x, y, 1, x * y % _P


_BASE = _point((4 * pow(5, _P - 2, _P) % _P).to_bytes(32, "little"))


def verify(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the signature of 64 bytes is that of the message by the key of 32 bytes."""
    if len(public_key) != 32 or len(signature) != 64:
        return False
    key, r = _point(public_key), _point(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if key is None or r is None or s >= _L:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + public_key + message).digest(),
                       "little") % _L
    return _is_equal(_multiply(s, _BASE), _add(r, _multiply(k, key)))


def _bytes(p: Point) -> bytes:
    """Encodes a point (5.1.2)."""
    inverse = pow(p[2], _P - 2, _P)
    x, y = p[0] * inverse % _P, p[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _secret(seed: bytes) -> tuple[int, bytes]:
    """The scalar and the prefix of a private key (5.1.5)."""
    digest = hashlib.sha512(seed).digest()
    return int.from_bytes(digest[:32], "little") & ~7 & (1 << 254) - 1 | 1 << 254, digest[32:]


def public_key_of(seed: bytes) -> bytes:
    return _bytes(_multiply(_secret(seed)[0], _BASE))


def sign(seed: bytes, message: bytes) -> bytes:
    """The signature of 64 bytes by the private key of 32 (5.1.6)."""
    scalar, prefix = _secret(seed)
    public = public_key_of(seed)
    r = int.from_bytes(hashlib.sha512(prefix + message).digest(), "little") % _L
    point = _bytes(_multiply(r, _BASE))
    k = int.from_bytes(hashlib.sha512(point + public + message).digest(), "little") % _L
    return point + ((r + k * scalar) % _L).to_bytes(32, "little")
