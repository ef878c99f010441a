"""Keys, scopes, limits and headers: what every request passes."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from portfolio_sdpo.errors import RegistryUnavailableError, SettingsError
from portfolio_sdpo.registry import Registry
from portfolio_sdpo_app.api.config import ServeSettings
from portfolio_sdpo_app.api.server import check_keys

from .helpers import problem

PATHS = ("/weights", "/models", "/models/x", "/backtests", "/backtests/x", "/jobs", "/jobs/x", "/audit", "/metrics")


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_a_registry_that_cannot_be_read_does_not_make_the_process_unhealthy(
    serve: Callable[..., Any], champion: Callable[..., str], registry: Registry, monkeypatch: pytest.MonkeyPatch
):
    champion()
    registry.create_key("probe", "read")
    http = serve().http

    def fail(_: object, secret: str) -> None:
        raise RegistryUnavailableError("The registry is locked.")

    monkeypatch.setattr(Registry, "check_key", fail)
    assert http.get("/health", headers=bearer("psdpo_a_b")).status_code == 200
    problem(http.get("/models", headers=bearer("psdpo_a_b")), 503, "registry-unavailable")


def test_keys_and_scopes(serve: Callable[..., Any], champion: Callable[..., str], registry: Registry):
    champion()
    reader, read = registry.create_key("reader", "read")
    _, train = registry.create_key("trainer", "train")
    running = serve()
    http = running.http
    while http.get("/ready").status_code != 200:
        pass
    for path in (*PATHS, "/nowhere"):
        told = http.get(path)
        problem(told, 401, "key-needed")
        assert told.headers["www-authenticate"] == "Bearer"
    for path in ("/health", "/ready", "/openapi.json"):
        assert http.get(path).status_code == 200
    for wrong in (read[:-1], read + "0", read.replace(read[-64:], "0" * 64), "x", "psdpo_", "psdpo_é_1".encode()):
        problem(http.get("/weights", headers={"X-API-Key": wrong}), 401, "key-needed")
    problem(http.get("/weights", headers={"Authorization": f"Basic {read}"}), 401, "key-needed")
    for headers in (bearer(read), {"authorization": f"bearer  {read}"}, {"X-API-Key": read}, bearer(train)):
        assert http.get("/weights", headers=headers).status_code == 200
    problem(http.post("/retrain", json={}, headers=bearer(read)), 403, "scope-needed")
    problem(http.post("/retrain%0A", json={}, headers=bearer(read)), 403, "scope-needed")
    assert http.post("/retrain", json={"preset": "none"}, headers=bearer(train)).status_code == 422
    registry.revoke_key(reader.id)
    while http.get("/weights", headers=bearer(read)).status_code == 200:
        pass
    problem(http.get("/weights", headers=bearer(read)), 401, "key-needed")
    assert http.get("/weights", headers=bearer(train)).status_code == 200


def test_the_first_key_closes_the_door_for_good(
    serve: Callable[..., Any], champion: Callable[..., str], registry: Registry
):
    champion()
    running = serve()
    running.settle()
    key, _ = registry.create_key("first", "read")
    while (told := running.http.get("/weights")).status_code == 200:
        pass
    problem(told, 401, "key-needed")
    registry.revoke_key(key.id)
    for _ in range(10):
        problem(running.http.get("/models"), 401, "key-needed")


def test_only_loopback_without_a_key(registry: Registry):
    with pytest.raises(SettingsError, match="API key"):
        check_keys(ServeSettings(host="0.0.0.0"), registry)
    check_keys(ServeSettings(host="127.0.0.1"), registry)
    check_keys(ServeSettings(host="localhost"), registry)
    key, _ = registry.create_key("any", "read")
    check_keys(ServeSettings(host="0.0.0.0"), registry)
    registry.revoke_key(key.id)
    with pytest.raises(SettingsError, match="API key"):
        check_keys(ServeSettings(host="::"), registry)


def test_a_page_of_somebody_else_cannot_ask_in_our_name(serve: Callable[..., Any], champion: Callable[..., str]):
    champion()
    running = serve()
    running.settle()
    for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "10.0.0.1", "[2001:db8::1]:80", ""):
        problem(running.http.get("/weights", headers={"Host": host}), 403, "host-refused")
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:8000", "127.9.9.9", "[::1]:8000"):
        assert running.http.get("/weights", headers={"Host": host}).status_code == 200


def test_bodies_are_bounded_said_or_not(serve: Callable[..., Any], champion: Callable[..., str]):
    champion()
    running = serve(max_body=1000)
    running.settle()
    as_json = {"Content-Type": "application/json"}
    for path in ("/weights", "/retrain"):
        problem(running.http.post(path, content=b" " * 1001, headers=as_json), 413, "body-too-large")
        chunks = (b" " * 400 for _ in range(3))
        problem(running.http.post(path, content=chunks, headers=as_json), 413, "body-too-large")
        fits = (b" " * 400 for _ in range(2))
        assert running.http.post(path, content=fits, headers=as_json).status_code == 422
    # A length that is a lie of its own.
    with socket.create_connection((running.http.base_url.host, running.http.base_url.port or 0)) as line:
        line.sendall(
            b"POST /api/v1/weights HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99999999999\r\n\r\n"
        )
        assert line.recv(100).startswith(b"HTTP/1.1 413")
    running.settle()


def test_rates_are_bounded_for_each_caller(serve: Callable[..., Any], champion: Callable[..., str], registry: Registry):
    champion()
    _, one = registry.create_key("one", "read")
    _, other = registry.create_key("other", "read")
    running = serve(rate=0.001, burst=4)
    # The first time each key also pays for the check of its caller.
    codes = [running.http.get("/models", headers=bearer(one)).status_code for _ in range(5)]
    assert codes == [200, 200, 200, 200, 429]
    told = running.http.get("/models", headers=bearer(one))
    problem(told, 429, "too-many-requests")
    assert int(told.headers["retry-after"]) > 0
    assert running.http.get("/models", headers=bearer(other)).status_code == 200
    # Guessing keys is paid for by the address.
    codes = [running.http.get("/models", headers=bearer(f"guess{number}")).status_code for number in range(4)]
    assert codes == [401, 401, 429, 429]


def test_headers_and_ids(serve: Callable[..., Any], champion: Callable[..., str]):
    champion()
    running = serve()
    running.settle()
    ids = set()
    for path in ("/weights", "/health", "/nowhere", "/models"):
        answer = running.http.get(path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "cache-control" in answer.headers and "server" not in answer.headers.get("server", "")
        ids.add(answer.headers["x-request-id"])
    assert len(ids) == 4
    assert running.http.get("/health", headers={"X-Request-ID": "a.b-c_1"}).headers["x-request-id"] == "a.b-c_1"
    for bad in ("a b", "x" * 65, "<script>"):
        assert running.http.get("/health", headers={"X-Request-ID": bad}).headers["x-request-id"] != bad


def test_whatever_goes_wrong_is_a_problem(serve: Callable[..., Any], champion: Callable[..., str]):
    champion()
    running = serve()
    running.settle()
    http = running.http
    problem(http.get("/nowhere"), 404, "about:blank")
    problem(http.get("/models/none"), 404, "not-found")
    problem(http.get("/jobs/none"), 404, "not-found")
    problem(http.get("/backtests/none"), 404, "not-found")
    told = http.delete("/weights")
    problem(told, 405, "about:blank")
    assert told.headers["allow"] == "GET, POST"
    content = problem(http.get("/audit", params={"limit": 0}), 422, "invalid")
    assert content["errors"][0]["field"] == "query.limit"
    problem(http.get("/audit", params={"request_id": "\0"}), 422, "invalid")
    problem(http.post("/retrain", json={"path": "/etc/passwd"}), 422, "invalid")
    problem(http.post("/retrain", json={"snapshot": "../../etc/passwd"}), 422, "invalid")
    for path in ("/backtests/..%2f..%2fetc", "/backtests/%2e%2e", "/models/..%2f.."):
        assert http.get(path).status_code == 404
    running.services.publisher.get_answer = lambda: 1 / 0
    problem(http.get("/weights"), 500, "internal")


def test_without_keys_no_page_of_another_site_is_answered(serve: Callable[..., Any], champion: Callable[..., str]):
    champion()
    http = serve().http
    for header in ({"Origin": "https://elsewhere.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        problem(http.post("/retrain", json={}, headers=header), 403, "host-refused")
    assert http.get("/models", headers={"Origin": str(http.base_url).removesuffix("/api/v1/")}).status_code == 200


def test_a_key_that_expires_and_one_that_is_used(serve: Callable[..., Any], registry: Registry, champion: Any):
    champion()
    registry.create_key("other", "read")
    key, secret = registry.create_key("short", "read", lifetime=timedelta(seconds=3))
    running = serve(check_every=0.5)
    running.http.headers["X-API-Key"] = secret
    running.settle()
    running.services.keys._note_uses()
    used = {each.id: each.last_used_at for each in registry.api_keys()}[key.id]
    assert used is not None and key.created_at <= used <= datetime.now(UTC)
    running.settle("key-needed", 5.0)


def test_a_keyless_service_answers_no_proxy(serve: Callable[..., Any], champion: Callable[..., str]):
    champion()
    running = serve()
    running.settle()
    for header in (
        {"X-Forwarded-For": "203.0.113.9"}, {"X-Forwarded-Host": "x"}, {"X-Forwarded-Proto": "https"},
        {"Forwarded": "for=203.0.113.9"}, {"Via": "1.1 proxy"}, {"X-Real-IP": "203.0.113.9"},
        {"X-Forwarded-Port": "443"}, {"CF-Connecting-IP": "203.0.113.9"}, {"True-Client-IP": "203.0.113.9"},
    ):  # fmt: skip
        problem(running.http.get("/weights", headers=header), 403, "host-refused")
        assert running.http.get("/ready", headers=header).json()["model_id"] is None


def test_nginx_without_further_settings_is_a_proxy(serve: Callable[..., Any], champion: Callable[..., str]):
    model_id = champion()
    running = serve()
    running.settle()
    for path, expected in (("weights", b"403"), ("ready", b"200")):
        with socket.create_connection((running.http.base_url.host, running.http.base_url.port or 0)) as line:
            # What it sends for `proxy_pass http://127.0.0.1:8000;`
            line.sendall(f"GET /api/v1/{path} HTTP/1.0\r\nHost: 127.0.0.1:8000\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while received := line.recv(10_000):
                answer += received
        assert answer.startswith(b"HTTP/1.1 " + expected) and model_id.encode() not in answer


def test_two_hosts_are_refused(serve: Callable[..., Any], champion: Callable[..., str]):
    champion()
    running = serve()
    running.settle()
    headers = [("Host", "localhost"), ("Host", "evil.example")]
    for order in (headers, headers[::-1]):
        with socket.create_connection((running.http.base_url.host, running.http.base_url.port or 0)) as line:
            lines = "".join(f"{name}: {value}\r\n" for name, value in order)
            line.sendall(f"GET /api/v1/weights HTTP/1.1\r\n{lines}\r\n".encode())
            assert line.recv(100).startswith(b"HTTP/1.1 400")


def test_ready_tells_the_model_to_callers_with_a_key(
    serve: Callable[..., Any], champion: Callable[..., str], registry: Registry
):
    model_id = champion()
    running = serve()
    running.settle()
    assert running.http.get("/ready").json()["model_id"] == model_id
    _, secret = registry.create_key("desk", "read")
    while running.http.get("/models").status_code == 200:
        pass
    assert running.http.get("/ready").json() == {
        "status": "ready", "as_of": None, "model_id": None, "fail_safe": None
    }  # fmt: skip
    assert running.http.get("/ready", headers=bearer("wrong")).json()["model_id"] is None
    assert running.http.get("/ready", headers=bearer(secret)).json()["model_id"] == model_id
    registry.withdraw("in doubt", by="test")
    running.http.headers.update(bearer(secret))
    running.settle("champion-withdrawn")
    assert model_id in problem(running.http.get("/ready"), 503, "champion-withdrawn")["detail"]
    del running.http.headers["Authorization"]
    assert model_id not in problem(running.http.get("/ready"), 503, "champion-withdrawn")["detail"]


def test_errors_of_the_service_are_logged_with_the_request(
    serve: Callable[..., Any], champion: Callable[..., str], caplog: pytest.LogCaptureFixture
):
    champion()
    running = serve()
    running.settle()
    running.services.publisher.get_answer = lambda: 1 / 0
    problem(running.http.get("/weights", headers={"X-Request-ID": "mine.7"}), 500, "internal")
    deadline = time.monotonic() + 5.0
    while not (errors := [each for each in caplog.records if each.levelname == "ERROR"]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (record,) = errors
    assert "mine.7" in record.getMessage() and record.exc_info is not None


def test_a_client_that_hangs_up_is_one_line(
    serve: Callable[..., Any], champion: Callable[..., str], caplog: pytest.LogCaptureFixture
):
    champion()
    running = serve()
    running.settle()
    caplog.set_level("INFO")
    for path in ("weights", "retrain"):
        caplog.clear()
        with socket.create_connection((running.http.base_url.host, running.http.base_url.port or 0)) as line:
            line.sendall(
                f"POST /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                "X-Request-ID: gone.1\r\nContent-Length: 1000\r\n\r\n{".encode()
            )
            time.sleep(0.3)
        time.sleep(0.5)
        told = [each for each in caplog.records if each.name.startswith(("portfolio", "uvicorn")) and each.exc_info]
        assert told == []
    assert running.http.get("/weights").status_code == 200
