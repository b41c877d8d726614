"""An identity provider for tests on loopback, with PyJWT, whose keys and behaviour the test chooses."""

import base64
import http.server
import json
import time

import harness
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

AUDIENCE = "https://tuning.test"
PATH_OF_KEYS = "/keys"


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value, size=None):
    return base64url(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


class Key:
    def __init__(self, kid, alg="RS256"):
        self.kid, self.alg = kid, alg
        self.private = (rsa.generate_private_key(public_exponent=65537, key_size=2048) if alg == "RS256" else
                        ec.generate_private_key(ec.SECP256R1()))

    @property
    def jwk(self):
        numbers = self.private.public_key().public_numbers()
        more = ({"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)} if self.alg == "RS256" else
                {"kty": "EC", "crv": "P-256", "x": number(numbers.x, 32), "y": number(numbers.y, 32)})
        return {"kid": self.kid, "use": "sig", "alg": self.alg, **more}


class Issuer(harness.Loopback):
    """`with Issuer() as issuer: …`. `behaviour`: None, or a function (path, handler) that answers in its place and then
    returns True."""

    def __init__(self):
        self.keys, self.requests, self.behaviour = [Key("first")], [], None
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                issuer.requests.append(self.path)
                if issuer.behaviour and issuer.behaviour(self.path, self):
                    return
                if self.path == "/.well-known/openid-configuration":
                    body = {"issuer": issuer.url, "jwks_uri": issuer.url + PATH_OF_KEYS}
                else:
                    body = {"keys": [key.jwk for key in issuer.keys]}
                self.answer(200, json.dumps(body).encode())

            def answer(self, status, body):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.listen(Handler)
        self.http.handle_error = lambda *_: None  # a server that ends closes its connection

    def fetches(self):
        return self.requests.count(PATH_OF_KEYS)

    def claims(self, **more):
        """Those of a job of GitHub Actions on the main branch; None leaves one out."""
        now = int(time.time())
        claims = {"iss": self.url, "aud": AUDIENCE, "iat": now, "nbf": now, "exp": now + 300, "jti": "a-jti",
                  "sub": "repo:octo/kernels:ref:refs/heads/main", "repository": "octo/kernels", "repository_id": "1296269",
                  "repository_owner_id": "583231", "ref": "refs/heads/main", "actor": "mona", "run_id": "42"} | more
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, key=None, headers=None, **claims):
        key = key or self.keys[0]
        return jwt.encode(self.claims(**claims), key.private, algorithm=key.alg, headers={"kid": key.kid} | (headers or {}))

    def configuration(self, *rules, **more):
        """What --oidc reads, for this issuer: one rule for main that may publish, one for the other branches, or `rules`."""
        rules = rules or ({"claims": {"repository_id": "1296269", "ref": "refs/heads/main"}, "role": "submitter,publisher",
                           "channels": ["nightly-*"]},
                          {"claims": {"repository_id": "1296269", "ref": "refs/heads/*"}, "role": "submitter"})
        return {"issuer": self.url, "name": "github", "audience": AUDIENCE, "rules": list(rules), **more}
