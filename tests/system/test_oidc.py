"""Tokens of identity providers: a provider on loopback (issuers.py) whose keys and behaviour the test chooses, and PyJWT as the
oracle of what is valid."""

import concurrent.futures
import http.client
import json
import random
import signal
import ssl
import subprocess
import threading
import time

import harness
import jwt
import pytest
from certificates import Authority
from cryptography.hazmat.primitives import serialization
from harness import BUILD, wait_until, wavetune
from issuers import AUDIENCE, PATH_OF_KEYS, Issuer, Key, base64url

MAIN = "github:octo/kernels@refs/heads/main"
PAUSE = {"pause_seconds": 1}


@pytest.fixture
def issuer():
    with Issuer() as made:
        yield made


@pytest.fixture
def serve(start, database, tmp_path):
    """Starts a server with these issuers' configurations in its file."""
    def begin(*configurations, options=()):
        path = tmp_path / "oidc.json"
        path.write_text(json.dumps(configurations))
        return start(harness.Server, database, options=("--oidc", path, *options))

    return begin


def own(server, token):
    return server.request("GET", "/v1/token", token=token)


def accepted(server, token):
    answer = own(server, token)
    assert answer.status == 200, answer
    return answer.json


# What a token may do


def test_a_token_has_the_role_and_the_channels_of_the_first_rule_that_holds(serve, issuer):
    server = serve(issuer.configuration())
    main, branch = accepted(server, issuer.token()), accepted(server, issuer.token(ref="refs/heads/try"))
    assert (main["name"], main["role"], main["channels"]) == (MAIN, "submitter,publisher", ["nightly-*"])
    assert (branch["name"], branch["role"], branch["channels"]) == ("github:octo/kernels@refs/heads/try", "submitter", None)

    release = {"release": "sha256:" + "0" * 64}
    may = server.request("PUT", "/v1/channels/nightly-1", release, token=issuer.token())
    assert may.status == 422 and "there is no release" in may.json["detail"]
    refused = server.request("PUT", "/v1/channels/stable", release, token=issuer.token())
    assert refused.status == 403 and "nightly-*" in refused.json["detail"] and '"stable"' in refused.json["detail"]
    refused = server.request("PUT", "/v1/channels/nightly-1", release, token=issuer.token(ref="refs/heads/try"))
    assert refused.status == 403 and "has the role submitter" in refused.json["detail"]


@pytest.mark.parametrize("claims,seen", [
    ({"repository_id": "7"}, 'repository_id "7", ref "refs/heads/main"'), ({"ref": "refs/tags/v1"}, 'ref "refs/tags/v1"'),
    ({"ref": None}, "no ref"),
    ({"repository_id": 1296269, "ref": "refs/pull/3/merge"}, 'repository_id "1296269", ref "refs/pull/3/merge"')])
def test_a_token_without_a_rule_is_refused_with_the_claims_that_rules_name(serve, issuer, claims, seen):
    server = serve(issuer.configuration())
    answer = own(server, issuer.token(**claims))
    assert answer.status == 403 and seen in answer.json["detail"] and "mona" not in answer.json["detail"], answer
    counts = server.request("GET", "/metrics").body.decode()
    assert 'wavetune_tokens_refused_total{reason="provider"} 1' in counts and "wavetune_oidc_tokens_total 0" in counts
    assert "wavetune_oidc_fetches_total 1" in counts and "wavetune_oidc_fetches_failed_total 0" in counts


def test_what_an_identity_does_is_recorded_under_its_name_and_no_token_is_kept(serve, issuer, postgres, database, tmp_path):
    server = serve(issuer.configuration(), options=("--log-requests", "all"))
    token = issuer.token()
    accepted(server, token)
    kernel = harness.small_kernel(tmp_path / "kernel")
    wavetune(server, "kernel", "push", kernel, token=token)
    entries = server.items("/v1/audit?token=" + MAIN.replace("@", "%40"))
    assert {e["action"] for e in entries} >= {"accept-token", "register", "put-blob"}
    assert len({e["token_id"] for e in entries}) == 1
    accept = next(e for e in entries if e["action"] == "accept-token")
    assert accept["detail"]["claims"]["run_id"] == "42" and accept["detail"]["issuer"] == issuer.url
    assert accept["peer"] == "127.0.0.1"

    assert f"identity of {issuer.url}" in wavetune(server, "token", "list").stdout
    listed = next(t for t in server.items("/v1/tokens") if t["name"] == MAIN)
    assert listed["issuer"] == issuer.url and listed["expires_at"]
    dump = postgres.sql("select string_agg(t::text, '') from tokens t", conninfo=database) + postgres.sql(
        "select string_agg(a::text, '') from audit a", conninfo=database)
    for part in token.split(".")[1:]:
        assert part not in server.messages and part not in dump
    assert f"token={MAIN}" in server.messages


def test_two_servers_share_identities(serve, start, issuer, database):
    first, second = serve(issuer.configuration()), serve(issuer.configuration())
    token = issuer.token()
    assert accepted(first, token) == accepted(second, token)
    assert sum(t["name"] == MAIN for t in first.items("/v1/tokens")) == 1


def test_one_ref_with_rules_for_two_of_its_jobs_has_an_identity_for_each(serve, issuer):
    rules = ({"claims": {"repository_id": "1296269", "environment": "production"}, "role": "publisher", "channels": ["stable"]},
             {"claims": {"repository_id": "1296269"}, "role": "submitter"})
    server = serve(issuer.configuration(*rules))
    for _ in range(2):
        assert accepted(server, issuer.token(environment="production"))["role"] == "publisher"
        assert accepted(server, issuer.token())["role"] == "submitter"


def test_gitlabs_tokens_and_odd_names_make_safe_names(serve, issuer):
    rules = [{"claims": {"project_id": "22"}, "role": "submitter"}]
    server = serve(issuer.configuration(*rules, name="gitlab"))
    claims = {"repository": None, "repository_id": None, "project_id": "22"}
    assert accepted(server, issuer.token(**claims, project_path="group/p", ref="main"))["name"] == "gitlab:group/p@main"
    odd = accepted(server, issuer.token(**claims, project_path="group/p", ref="a b\n<img>é"))["name"]
    assert odd == "gitlab:group/p@a%20b%0A%3Cimg%3E%C3%A9"
    long, other = (accepted(server, issuer.token(**claims, project_path="group/p", ref="x" * 900 + end))["name"] for end in "ab")
    assert len(long) == len(other) == 200 and long != other
    assert accepted(server, issuer.token(**claims, ref=None))["name"].startswith("gitlab:repo:octo/kernels:ref")


def test_tokens_that_were_accepted_are_known_while_the_database_is_away(serve, issuer, postgres, database):
    """And a new one is answered 503: its identity cannot be stored."""
    server = serve(issuer.configuration())
    token = issuer.token()
    accepted(server, token)
    postgres.kill()
    try:
        assert server.request("GET", "/metrics", token=token).status == 200
        answer = server.request("GET", "/metrics", token=issuer.token(jti="new"))
        assert answer.status == 503 and "database is away" in answer.json["detail"] and "wt-pg" not in answer.json["detail"]
    finally:
        postgres.start()
    wait_until(lambda: own(server, issuer.token(jti="later")).status == 200, 60, "the database to be back")


# Which tokens are valid


def test_a_large_token_is_accepted_and_one_beyond_the_limit_is_not(serve, issuer):
    server = serve(issuer.configuration())
    assert len(issuer.token(more="x" * 5000)) > 7000
    accepted(server, issuer.token(more="x" * 5000))
    assert own(server, issuer.token(more="x" * 6500)).status == 401


def test_a_token_ends_while_it_is_used(serve, issuer):
    server = serve(issuer.configuration())
    token = issuer.token(exp=int(time.time()) - 60 + 4)  # the leeway is a minute
    accepted(server, token)
    wait_until(lambda: own(server, token).status == 401, 20, "the token to end")
    assert "expired" in own(server, token).json["detail"]


def test_a_revoked_identity_is_refused_until_a_token_is_issued_later(serve, issuer, postgres, database):
    server = serve(issuer.configuration())
    token, early = issuer.token(), issuer.token(jti="early", iat=int(time.time()) - 170)
    accepted(server, token)
    accepted(server, early)
    assert wavetune(server, "token", "revoke", MAIN).returncode == 0
    assert own(server, token).status == 401
    answer = own(server, issuer.token(jti="another"))
    assert answer.status == 401 and "were revoked" in answer.json["detail"]
    postgres.sql("update tokens set created_at = created_at - interval '100 s', revoked_at = revoked_at - interval '100 s' "
                 "where issuer is not null", conninfo=database)
    accepted(server, issuer.token(jti="later"))
    assert own(server, early).status == 401, "it was issued before, and the server remembers it"
    assert own(serve(issuer.configuration()), early).status == 401
    assert [bool(t["revoked_at"]) for t in server.items("/v1/tokens") if t["name"] == MAIN] == [True, False]


def verdicts(tmp_path, issuer, tokens, now):
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [key.jwk for key in issuer.keys]}))
    done = subprocess.run([BUILD / "tests/jwt_verdicts", keys, issuer.url, AUDIENCE, str(now)],
                          input="".join(t + "\n" for t in tokens), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(tokens)
    return lines


def is_valid_by_pyjwt(token, issuer):
    """By the key that its kid names, with the key's own algorithm."""
    try:
        kid = jwt.get_unverified_header(token).get("kid")
        key = next((k for k in issuer.keys if k.kid == kid), None)
        if not key:
            return False
        claims = jwt.decode(token, key.private.public_key(), algorithms=[key.alg], audience=AUDIENCE, issuer=issuer.url,
                            leeway=60, options={"require": ["exp", "iat", "iss", "aud"]})
        return isinstance(claims["aud"], str) or len(claims["aud"]) == 1  # others may have the token, too
    except (jwt.PyJWTError, TypeError, ValueError, OverflowError):  # the latter for claims of wrong types
        return False


def signed(key, head, claims):
    """A token with this head and these claims, whatever they are, and a right signature."""
    text = ".".join(base64url(part if isinstance(part, bytes) else json.dumps(part).encode()) for part in (head, claims))
    algorithm = jwt.algorithms.get_default_algorithms()[key.alg]
    return f"{text}.{base64url(algorithm.sign(text.encode(), key.private))}"


def table(issuer):
    """(what it is, token) of hundreds of tokens that are right, wrong, or changed after they were signed."""
    rsa, ec = issuer.keys
    now, chance = int(time.time()), random.Random(7)
    for key in (rsa, ec):
        head = {"alg": key.alg, "kid": key.kid, "typ": "JWT"}
        yield "right", issuer.token(key)
        for name in ("iss", "aud", "exp", "iat", "nbf", "jti", "ref"):
            yield f"without {name}", signed(key, head, issuer.claims(**{name: None}))
        for seconds in (-100000, -3600, -120, -62, -50, -1, 0, 1, 50, 70, 3600, 100000):
            for name in ("exp", "iat", "nbf"):
                yield f"{name} {seconds}", signed(key, head, issuer.claims(**{name: now + seconds}))
                yield f"{name} {seconds}.5", signed(key, head, issuer.claims(**{name: now + seconds + 0.5}))
        for name in ("exp", "iat", "nbf"):
            for value in ([], {}, True, "soon", "", -1e300 if name == "exp" else 1e300):
                if not (name == "iat" and value == 1e300) and not (value is True):
                    yield f"{name} {value!r}", signed(key, head, issuer.claims(**{name: value}))
        for aud in (AUDIENCE + "/", AUDIENCE[:-1], AUDIENCE.upper(), "", [], [AUDIENCE], [AUDIENCE, "x"], ["x"], [7], 7, {},
                    {"a": 1}):
            yield f"aud {aud!r}", signed(key, head, issuer.claims(aud=aud))
        for iss in (issuer.url + "/", issuer.url[:-1], "", "https://other.test", 7, [issuer.url], {}):
            yield f"iss {iss!r}", signed(key, head, issuer.claims(iss=iss))
        for alg in ("none", "None", "NONE", "HS256", "HS384", "RS384", "RS512", "PS256", "ES384", "ES256K", "EdDSA", "", "rs256", 7,
                    None, [], rsa.alg, ec.alg):
            yield f"alg {alg!r}", signed(key, {**head, "alg": alg}, issuer.claims())
        for kid in ("", "nobody", key.kid.upper(), key.kid + "\0x", 7, None, [key.kid], "../first", "first' or '1", rsa.kid,
                    ec.kid):
            yield f"kid {kid!r}", signed(key, {**head, "kid": kid}, issuer.claims())
        for claims in (b"[]", b"7", b"", b"{", b"null", b'"x"', b"\xff\xfe"):
            yield f"claims {claims!r}", signed(key, head, claims)
        for other in (b"[]", b"7", b"", b"{", b"null"):
            yield f"head {other!r}", signed(key, other, issuer.claims())

        # HS256 with the public key as its secret, in the two forms that libraries have taken it in, and no signature at all.
        for form in (serialization.PublicFormat.SubjectPublicKeyInfo, serialization.PublicFormat.PKCS1):
            if key is rsa or form is not serialization.PublicFormat.PKCS1:
                pem = key.private.public_key().public_bytes(serialization.Encoding.PEM, form)
                text = ".".join(base64url(json.dumps(part).encode()) for part in ({**head, "alg": "HS256"}, issuer.claims()))
                mac = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
                yield "HS256", f"{text}.{base64url(mac.sign(text.encode(), pem))}"
        right = issuer.token(key)
        first, second, signature = right.split(".")
        yield "no signature", f"{first}.{second}."
        yield "two parts", f"{first}.{second}"
        yield "five parts", f"{right}.{second}.{signature}"
        yield "another's signature", f"{first}.{second}.{issuer.token(rsa if key is ec else ec).split('.')[2]}"
        yield "signature of other claims", f"{first}.{second}.{issuer.token(key, ref='x').split('.')[2]}"
        yield "ES256 of zeros", f"{first}.{second}.{base64url(bytes(64))}"
        yield "ES256 in DER", f"{first}.{second}.{base64url(b'0' + bytes(70))}"
        for _ in range(120):
            at = chance.randrange(len(right))
            replaced = chance.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
            yield f"character {at}", right[:at] + replaced + right[at + 1:]
            yield f"without character {at}", right[:at] + right[at + 1:]
            yield f"cut at {at}", right[:at]


def test_the_verifier_and_pyjwt_say_the_same_of_hundreds_of_tokens(issuer, tmp_path):
    issuer.keys = [Key("first"), Key("second", "ES256")]
    rows = [(what, token) for what, token in table(issuer) if "\n" not in token]
    answers = verdicts(tmp_path, issuer, [token for _, token in rows], int(time.time()))
    different, valid = [], 0
    for (what, token), line in zip(rows, answers):
        by_pyjwt, ours = is_valid_by_pyjwt(token, issuer), line == "valid"
        valid += ours
        # The last character of a part has bits that no byte takes: Python drops them, here they must be zeros.
        is_stricter = by_pyjwt and what.startswith("character") and "base64url" in line
        if by_pyjwt != ours and not is_stricter:
            different.append((what, by_pyjwt, line))
    assert not different, different
    assert len(rows) > 900 and 40 < valid < len(rows) / 4, (len(rows), valid)


@pytest.mark.parametrize("change,why", [
    (lambda i: i.token(aud="https://other.test"), "audience"), (lambda i: i.token(exp=int(time.time()) - 100), "expired"),
    (lambda i: i.token(nbf=int(time.time()) + 100), "not valid yet"),
    (lambda i: i.token(exp=int(time.time()) + 3650 * 86400), "valid for 3650 days more"),
    (lambda i: i.token(exp=9224318015940), "for at most 31 days"),
    (lambda i: i.token(iss="https://other.test"), "does not name"),
    (lambda i: jwt.encode(i.claims(), None, algorithm="none", headers={"kid": "first"}), "algorithm"),
    (lambda i: jwt.encode(i.claims(), "secret", algorithm="HS256", headers={"kid": "first"}), "algorithm"),
    (lambda i: i.token(headers={"crit": ["x"]}), "crit"), (lambda i: i.token(key=Key("first")), "signature"),
    (lambda i: signed(i.keys[0], {"alg": "RS256"}, i.claims()), "kid"), (lambda i: "ey.ey.ey", "no JSON Web Token")])
def test_a_wrong_token_is_refused_with_the_reason(serve, issuer, change, why):
    answer = own(serve(issuer.configuration()), change(issuer))
    assert answer.status == 401 and why in answer.json["detail"], answer
    assert answer.headers["WWW-Authenticate"] == "Bearer"


# Keys


def test_a_new_key_is_fetched_when_a_token_names_it_and_an_old_one_ends(serve, issuer):
    server = serve(issuer.configuration(**PAUSE))
    old = issuer.token()
    accepted(server, old)
    issuer.keys = [Key("second", "ES256")]
    time.sleep(1.1)  # the pause
    accepted(server, issuer.token())
    fresh_of_old = jwt.encode(issuer.claims(jti="x"), Key("first").private, algorithm="RS256", headers={"kid": "first"})
    assert own(server, fresh_of_old).status == 401


def test_a_withdrawn_key_ends_with_the_next_fetch(serve, issuer):
    server = serve(issuer.configuration(refresh_seconds=1, **PAUSE))
    first = issuer.keys[0]
    accepted(server, issuer.token())
    issuer.keys = [Key("second")]
    wait_until(lambda: own(server, issuer.token(first, jti=str(time.time()))).status == 401, 20, "the key to be withdrawn")


def test_what_was_accepted_by_a_withdrawn_key_ends_with_it_and_the_rest_stays(serve, issuer):
    """Also on a connection that has used the token before."""
    issuer.keys = [Key("first"), Key("second")]
    server = serve(issuer.configuration(refresh_seconds=1, **PAUSE))
    withdrawn, kept = issuer.token(issuer.keys[0], jti="a"), issuer.token(issuer.keys[1], jti="b")
    accepted(server, withdrawn), accepted(server, kept)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)

    def status():
        connection.request("GET", "/v1/token", headers={"Authorization": f"Bearer {withdrawn}"})
        answer = connection.getresponse()
        answer.read()
        return answer.status

    assert status() == 200
    fetches = issuer.fetches()
    wait_until(lambda: issuer.fetches() > fetches + 1, 20, "the same keys to be fetched again")
    assert status() == 200 and "has withdrawn a key" not in server.messages
    issuer.keys = issuer.keys[1:]
    wait_until(lambda: status() == 401, 20, "the token to be refused")
    assert own(server, withdrawn).status == 401
    accepted(server, kept)
    connection.close()


def test_a_storm_of_unknown_keys_causes_one_fetch(serve, issuer):
    server = serve(issuer.configuration(pause_seconds=3600))
    wait_until(lambda: issuer.fetches() == 1, 20, "the first fetch")
    accepted(server, issuer.token())
    tokens = [issuer.token(headers={"kid": f"unknown-{i}"}) for i in range(150)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda token: own(server, token), tokens))
    assert {a.status for a in answers} <= {401, 503} and sum(a.status == 401 for a in answers) > 100
    assert issuer.fetches() == 1


def test_a_storm_when_a_fetch_is_due_causes_one_more(serve, issuer):
    server = serve(issuer.configuration(pause_seconds=2))
    accepted(server, issuer.token())
    time.sleep(2.1)
    release = threading.Event()
    issuer.behaviour = lambda path, handler: path == PATH_OF_KEYS and not release.wait(20)
    tokens = [issuer.token(headers={"kid": f"unknown-{i}"}) for i in range(60)]
    with concurrent.futures.ThreadPoolExecutor(60) as pool:
        answers = pool.map(lambda token: own(server, token), tokens)
        wait_until(lambda: issuer.fetches() == 2, 20, "the second fetch")
        release.set()
        statuses = [a.status for a in answers]
    assert issuer.fetches() == 2 and set(statuses) == {401}


def test_an_issuer_that_hangs_delays_no_other_request_and_old_keys_stay(serve, issuer):
    server = serve(issuer.configuration(**PAUSE), options=("--workers", "1"))
    accepted(server, issuer.token())
    release = threading.Event()
    issuer.behaviour = lambda path, handler: release.wait(60) and False
    time.sleep(1.1)
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        began = time.monotonic()
        waiting = [pool.submit(own, server, issuer.token(headers={"kid": f"new-{i}"})) for i in range(20)]
        wait_until(lambda: len(issuer.requests) > 2, 20, "the fetch to begin")
        others = [server.request("GET", "/v1/jobs"), own(server, issuer.token(jti="with the old key"))]
        assert not any(w.done() for w in waiting), "they still wait: the others overtook them, with one worker"
        assert [o.status for o in others] == [200, 200]
        answers = [w.result() for w in waiting]
        took = time.monotonic() - began
    assert sum(e["action"] == "accept-token" for e in server.items("/v1/audit")) == 2
    release.set()
    assert {a.status for a in answers} == {503} and all(int(a.headers["Retry-After"]) > 0 for a in answers)
    assert took < 5 + 5 * harness.PATIENCE, took
    assert "cannot be fetched" in server.messages


def answer_500(path, handler):
    handler.answer(500, b"{}")
    return True


def answer_10_mib(path, handler):
    handler.answer(200, b" " * (10 << 20))
    return True


def answer_without_json(path, handler):
    handler.answer(200, b"<html>")
    return True


def redirect(path, handler):
    handler.send_response(302)
    handler.send_header("Location", "http://127.0.0.1:1/")
    handler.send_header("Content-Length", "0")
    handler.end_headers()
    return True


def no_key(path, handler):
    if path == PATH_OF_KEYS:
        handler.answer(200, b'{"keys": [{"kid": "first", "kty": "oct", "k": "c2VjcmV0"}]}')
    return path == PATH_OF_KEYS


def another_issuer(path, handler):
    if path != PATH_OF_KEYS:
        handler.answer(200, json.dumps({"issuer": "https://other.test", "jwks_uri": "https://other.test/keys"}).encode())
    return path != PATH_OF_KEYS


def unencrypted_keys(path, handler):
    if path != PATH_OF_KEYS:
        issuer = f"http://{handler.headers['Host']}"
        handler.answer(200, json.dumps({"issuer": issuer, "jwks_uri": "http://other.test/keys"}).encode())
    return path != PATH_OF_KEYS


@pytest.mark.parametrize("behaviour,why", [
    (answer_500, "answered 500"), (answer_10_mib, "larger than"), (answer_without_json, "JSON"), (redirect, "answered 302"),
    (no_key, "no key"), (another_issuer, "other.test"), (unencrypted_keys, "https://")])
def test_an_issuer_that_misbehaves_is_away_and_keys_come_when_it_is_well_again(serve, issuer, behaviour, why):
    issuer.behaviour = behaviour
    server = serve(issuer.configuration(**PAUSE))
    wait_until(lambda: "cannot be fetched" in server.messages, 20, "the log to say so")
    assert why in server.messages
    answer = own(server, issuer.token())
    assert answer.status == 503 and answer.headers["Retry-After"] and issuer.url in answer.json["detail"], answer
    assert server.request("GET", "/v1/jobs").status == 200
    issuer.behaviour = None
    wait_until(lambda: own(server, issuer.token()).status == 200, 20, "the keys")


def test_keys_are_used_while_their_issuer_is_away_until_they_are_too_old(serve, issuer):
    server = serve(issuer.configuration(keep_seconds=4, refresh_seconds=1, **PAUSE))
    accepted(server, issuer.token())
    issuer.behaviour = answer_500
    wait_until(lambda: "answered 500" in server.messages, 20, "a fetch to fail")
    accepted(server, issuer.token(jti="with the old keys"))
    wait_until(lambda: own(server, issuer.token(jti=str(time.time()))).status == 503, 20, "the keys to be too old")
    assert "too old" in server.messages


def test_an_issuer_over_https_is_checked_by_the_authority_that_the_file_names(serve, issuer, tmp_path):
    authority = Authority(tmp_path)
    pair = authority.server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    issuer.http.socket = context.wrap_socket(issuer.http.socket, server_side=True)
    issuer.url = issuer.url.replace("http://127.0.0.1", "https://localhost")
    good = serve(issuer.configuration(ca=str(authority.certificate), **PAUSE))
    accepted(good, issuer.token())
    bad = serve(issuer.configuration(**PAUSE))
    wait_until(lambda: "certificate" in bad.messages, 20, "the log to say so")
    assert own(bad, issuer.token()).status == 503


def test_a_server_ends_in_order_while_an_issuer_hangs(serve, issuer):
    release = threading.Event()
    issuer.behaviour = lambda path, handler: release.wait(60) and False
    server = serve(issuer.configuration())
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(own, server, issuer.token()) for _ in range(4)]
        wait_until(lambda: "wavetune_suspended 4" in server.request("GET", "/metrics").body.decode(), 20, "four to wait")
        assert server.stop() == 0
        assert {w.result().status for w in waiting} == {503}
    release.set()


# The file


RULE = {"claims": {"repository_id": "1"}, "role": "submitter"}
ISSUER = {"issuer": "https://ci.test", "name": "ci", "audience": "a", "rules": [RULE]}


@pytest.mark.parametrize("configuration,words", [
    ([ISSUER | {"rules": [{"claims": {"repository": "octo/kernels", "ref": "refs/heads/main"}, "role": "submitter"}]}],
     ("/0/rules/0/claims", "repository_id", "project_id")),
    ([ISSUER | {"rules": [RULE | {"claims": {"repository_id": "1*"}}]}], ("/0/rules/0/claims",)),
    ([ISSUER | {"rules": [RULE | {"claims": {"repository_id": None}}]}], ("/0/rules/0/claims/repository_id",)),
    ([ISSUER | {"rules": [RULE | {"role": "admin"}]}], ("/0/rules/0/role", "admin")),
    ([ISSUER | {"rules": [RULE | {"role": "agent"}]}], ("/0/rules/0/role",)),
    ([ISSUER | {"rules": [RULE | {"role": "king"}]}], ("/0/rules/0/role", "king")),
    ([ISSUER | {"rules": [RULE | {"role": "publisher"}]}], ("/0/rules/0/channels",)),
    ([ISSUER | {"rules": [RULE | {"channels": ["stable"]}]}], ("/0/rules/0/channels",)),
    ([ISSUER | {"rules": []}], ("/0/rules",)), ([ISSUER | {"rules": [RULE | {"claims": {}}]}], ("/0/rules/0/claims",)),
    ([ISSUER | {"issuer": "http://ci.test"}], ("/0/issuer", "https://")),
    ([ISSUER | {"issuer": "http://127.0.0.1.ci.test"}], ("/0/issuer", "https://")),
    ([ISSUER | {"jwks_url": "http://ci.test/keys"}], ("/0/jwks_url",)),
    ([ISSUER | {"ca": "/nowhere.pem"}], ("/0/ca", "/nowhere.pem")),
    ([ISSUER | {"name": "C I"}], ("/0/name",)), ([ISSUER | {"audience": ""}], ("/0/audience",)),
    ([{k: v for k, v in ISSUER.items() if k != "audience"}], ("/0", "audience")), ([ISSUER | {"audiences": []}], ("audiences",)),
    ([ISSUER, ISSUER], ("/1", "two issuers")), ([], ("array",)), ({}, ("array",))])
def test_a_wrong_file_is_refused_in_one_sentence(tmp_path, configuration, words):
    path = tmp_path / "oidc.json"
    path.write_text(json.dumps(configuration))
    done = subprocess.run([BUILD / "wavetune-server", "serve", "--port", "0", "--database", "host=/nowhere", "--oidc", path],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, (done.returncode, done.stderr)
    assert all(word in done.stderr for word in ("--oidc", str(path), *words)), done.stderr


def test_sighup_reads_the_file_again_and_a_wrong_one_changes_nothing(serve, issuer, tmp_path):
    server = serve(issuer.configuration())
    token = issuer.token()
    accepted(server, token)
    path = tmp_path / "oidc.json"

    def reload(text, said):
        path.write_text(text)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: said in server.messages, 20, said)

    reload("[{]", "--oidc stays as it was")
    accepted(server, token)
    other = {"claims": {"repository_id": "7"}, "role": "submitter"}
    reload(json.dumps([issuer.configuration(other)]), "again")
    assert own(server, token).status == 403
    assert accepted(server, issuer.token(repository_id="7"))["role"] == "submitter"


def test_a_server_without_the_option_does_not_know_such_tokens(start, database, issuer):
    server = start(harness.Server, database)
    assert own(server, issuer.token()).status == 401
    assert not issuer.requests
