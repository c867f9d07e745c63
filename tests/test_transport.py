"""Connections: trust and proxies by the usual environment, nothing of it for a server on this machine, honest
limits."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from server import ScriptedServer, raw, text
from wiring import KEY, Asking, asking

from agent.client import ChatClient
from agent.errors import AgentError, ConfigError, TemporaryError
from agent.messages import Request
from agent.wire.providers import Target
from agent.wire.transport import Deadline, Transport, tls_context

CHAT = Request([{"role": "user", "content": "x"}])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh self-signed certificate for localhost, with its key in the same file."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    key, cert = path.with_name("key.pem"), path.with_name("cert.pem")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    command += [
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(cert),
    ]
    subprocess.run(command, check=True, capture_output=True)
    path.write_bytes(key.read_bytes() + cert.read_bytes())
    return path


@pytest.fixture
def secure(certificate: Path) -> Iterator[ScriptedServer]:
    """The scripted server behind TLS; its url begins with https."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with ScriptedServer([text("over tls")], repeat_last=True) as server:
        server._http.socket = context.wrap_socket(server._http.socket, server_side=True)
        yield server


def https(server: ScriptedServer) -> Target:
    return Target("", server.url.replace("http:", "https:"), "m", KEY)


def test_a_certificate_nobody_knows_is_refused_with_the_way_on(secure: ScriptedServer) -> None:
    client = ChatClient(https(secure), environ={})
    with pytest.raises(ConfigError) as caught:
        client.complete(CHAT, lambda delta: None)
    client.close()
    assert caught.value.text == f"The certificate of {https(secure).base_url} is not trusted"
    assert "SSL_CERT_FILE" in caught.value.hint and "AGENT_TLS=system" in caught.value.hint


def test_ssl_cert_file_makes_it_trusted(secure: ScriptedServer, certificate: Path) -> None:
    client = ChatClient(https(secure), environ={"SSL_CERT_FILE": str(certificate.with_name("cert.pem"))})
    assert client.complete(CHAT, lambda delta: None).message["content"] == "over tls"
    client.close()


def test_ssl_cert_dir_makes_it_trusted(secure: ScriptedServer, certificate: Path, tmp_path: Path) -> None:
    cert = certificate.with_name("cert.pem")
    done = subprocess.run(
        ["openssl", "x509", "-hash", "-noout", "-in", str(cert)], check=True, capture_output=True, text=True
    )
    (tmp_path / f"{done.stdout.strip()}.0").write_bytes(cert.read_bytes())
    client = ChatClient(https(secure), environ={"SSL_CERT_DIR": str(tmp_path)})
    assert client.complete(CHAT, lambda delta: None).message["content"] == "over tls"
    client.close()


def test_a_ca_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        tls_context({"SSL_CERT_FILE": "/nowhere/ca.pem"})
    assert caught.value.hint == "Correct or unset SSL_CERT_FILE"


def test_the_systems_trust_can_be_taken() -> None:
    assert isinstance(tls_context({"AGENT_TLS": "system"}), ssl.SSLContext)


def test_plain_loopback_reads_no_certificates() -> None:
    """In a fresh process: no trust is loaded, and nothing heavy comes along."""
    with ScriptedServer([text("hi")]) as server:
        code = (
            "import ssl, sys; loads = []\n"
            "ssl.SSLContext.load_verify_locations = lambda self, *a, **k: loads.append('file')\n"
            "ssl.SSLContext.load_default_certs = lambda self, *a, **k: loads.append('default')\n"
            "from agent.client import ChatClient; from agent.wire.providers import Target; from agent.messages import Request\n"
            f"c = ChatClient(Target('', {server.url!r}, 'm'))\n"
            "assert c.complete(Request([{'role': 'user', 'content': 'x'}]), print).complete; c.close()\n"
            "heavy = {'click', 'rich', 'tiktoken', 'asyncio', 'pydantic', 'requests', 'sqlite3', 'subprocess'}\n"
            "print(loads, sorted(heavy & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] []"


# ---- proxies ----


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[str]]]:
    """A proxy that writes down what it is asked for and refuses; (its URL, the first lines it got)."""
    asked: list[str] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection = listening.accept()[0]
            except OSError:
                return
            with connection:
                asked.append(connection.recv(4096).split(b"\r\n")[0].decode())
                connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://user:secretpass@127.0.0.1:{listening.getsockname()[1]}", asked
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_https_goes_through_the_proxy_of_the_environment(
    variable: str, proxy: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal says that it was the proxy, and shows no password."""
    url, asked = proxy
    monkeypatch.setenv(variable, url)
    client = ChatClient(Target("", "https://llm.example.com/v1", "m", KEY), sleep=lambda seconds: None)
    with pytest.raises(TemporaryError) as caught:
        client.complete(CHAT, lambda delta: None)
    client.close()
    assert asked[0] == "CONNECT llm.example.com:443 HTTP/1.1"
    assert "the proxy refused" in caught.value.text and "NO_PROXY" in caught.value.hint
    assert "secretpass" not in str(caught.value)


@pytest.mark.parametrize("exempt", ["NO_PROXY", "no_proxy"])
def test_no_proxy_is_honoured(exempt: str, proxy: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    url, asked = proxy
    monkeypatch.setenv("ALL_PROXY", url)
    monkeypatch.setenv(exempt, "llm.invalid,.example.com")
    client = ChatClient(Target("", "https://llm.invalid/v1", "m"), sleep=lambda seconds: None)
    with pytest.raises(TemporaryError) as caught:
        client.complete(CHAT, lambda delta: None)
    client.close()
    assert (asked, caught.value.kind) == ([], "connection")


def test_a_local_server_is_never_asked_through_a_proxy(
    proxy: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, proxy[0])
    with ScriptedServer([text("direct")]) as server:
        assert asking(server).ask().message["content"] == "direct"
    assert proxy[1] == []


@pytest.mark.parametrize("value", ["nonsense://x", "http://[::1", "socks5://127.0.0.1:1"])
def test_a_proxy_that_cannot_be_used_is_a_readable_error(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", value)
    client = ChatClient(Target("", "https://llm.example.com/v1", "m"), sleep=lambda seconds: None)
    with pytest.raises(ConfigError) as caught:
        client.complete(CHAT, lambda delta: None)
    client.close()
    assert "NO_PROXY" in caught.value.hint


# ---- answers ----


def test_a_compressed_stream_is_read() -> None:
    """We ask for none, but some gateways compress all the same."""
    import gzip

    body = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    with ScriptedServer([raw(gzip.compress(body), headers={"Content-Encoding": "gzip"})]) as server:
        assert asking(server).ask().message["content"] == "Hi"


@pytest.mark.parametrize("damaged", [b"\x1f\x8b\x08\x00garbage", b"\x1f\x8b"])
def test_a_broken_compression_is_a_connection_failure(damaged: bytes) -> None:
    with ScriptedServer([raw(damaged, headers={"Content-Encoding": "gzip"})], repeat_last=True) as server:
        asked: Asking = asking(server)
        with pytest.raises(AgentError) as caught:
            asked.ask()
    assert caught.value.exit_code == 75


def test_a_deadline_moves_only_when_it_is_told_to() -> None:
    now = [0.0]
    clock: Callable[[], float] = lambda: now[0]  # noqa: E731
    deadline = Deadline(clock, 5.0)
    now[0] = 4.0
    assert (deadline.left, deadline.passed) == (1.0, False)
    deadline.extend(3.0)
    now[0] = 7.0
    assert (deadline.left, deadline.passed) == (0.01, True)


def test_a_kept_connection_is_not_bound_by_the_deadline_of_the_answer_before() -> None:
    """The short limit of a question must not cut the wait of the request that follows on the same connection."""
    gate = threading.Event()

    def slow(request: dict[str, object], index: int) -> Any:
        gate.wait(5)
        return text("slow but here")

    now = [0.0]
    with ScriptedServer(
        slow, routes={"GET /v1/models": {"data": [{"id": "scripted", "max_model_len": 4096}]}}
    ) as server:
        asked = asking(server, clock=lambda: now[0])
        assert asked.client.ask_window() == 4096
        now[0] = 100.0
        threading.Timer(0.1, gate.set).start()
        assert asked.ask().message["content"] == "slow but here"
    assert (len(server.requests), asked.slept) == (1, [])


def test_asking_a_short_question(home: Path) -> None:
    with ScriptedServer(routes={"GET /props": {"n": 1}}) as server:
        transport = Transport(Target("", server.url, "m"), {})
        assert transport.ask("GET", server.url.removesuffix("/v1") + "/props", 2.0) == (200, b'{"n": 1}')
        transport.close()
