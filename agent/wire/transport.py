"""HTTP to one server: connections, TLS, proxies, and time limits that hold.

A plain-http server on this machine costs nothing it does not need: no certificates are read and no proxy is looked for.
Elsewhere the usual environment counts: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY; SSL_CERT_FILE and SSL_CERT_DIR;
AGENT_TLS=system takes the system's trust store in place of the bundled one. `Deadline` bounds silence between reads:
the reader moves it when there is progress, so heartbeats do not. All failures come out as errors of
`agent.wire.faults`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import httpx

from agent import __version__
from agent.errors import AgentError, ConfigError
from agent.wire.providers import Target, is_loopback

CONNECT_SECONDS = 15.0
PIECE = 1 << 18
"""Bytes given to a socket at once."""
_TLS_HINT = "Set SSL_CERT_FILE to your CA bundle, or AGENT_TLS=system to use the system's trust store"
_PROXY_HINT = "Check HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY"


class Deadline:
    """A moment on the clock by which bytes must come; moved by whoever sees progress."""

    def __init__(self, clock: Callable[[], float], at: float) -> None:
        self.clock, self.at = clock, at

    def extend(self, seconds: float) -> None:
        self.at = self.clock() + seconds

    @property
    def left(self) -> float:
        """Seconds left, at least a hundredth: a socket cannot wait for less."""
        return max(0.01, self.at - self.clock())

    @property
    def passed(self) -> bool:
        return self.clock() >= self.at


# ---- effects ----


class Transport:
    """Keeps the connections to one server. Not thread-safe."""

    def __init__(self, target: Target, environ: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        self._target = target
        self._environ = environ
        self._clock = clock
        self._client: httpx.Client | None = None
        self._release: Callable[[], None] = lambda: None

    def post(
        self, path: str, body: bytes, seconds: float, meanwhile: Callable[[], object] = lambda: None
    ) -> tuple[httpx.Response, Deadline]:
        """Send a request and wait `seconds` for the first byte of its answer; the deadline bounds reading the rest.

        `meanwhile` is called when all is sent, before the waiting begins; the time it takes is not the server's.

        Raises: `TemporaryError` (timeout, connection), `ConfigError` (TLS, proxy, address).
        """
        deadline = Deadline(self._clock, self._clock() + seconds)

        def sent() -> None:
            meanwhile()
            deadline.extend(seconds)

        response = self._send("POST", self._target.base_url + path, body, seconds, sent)
        self._release = _bound(response, deadline)
        return response, deadline

    def read(self, response: httpx.Response) -> Iterator[bytes]:
        """The pieces of an answer's body as they come. Raises: as `post`."""
        plain = response.headers.get("content-encoding", "identity").strip().lower() in ("", "identity")
        try:
            yield from response.iter_raw() if plain else response.iter_bytes()
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise _translated(error, self._target.base_url, 0) from error

    def whole(self, response: httpx.Response, limit: int = 1 << 20) -> bytes:
        """A body of at most `limit` bytes; what comes after is not read. A broken one gives what had come."""
        pieces, size = [], 0
        try:
            for piece in self.read(response):
                pieces.append(piece)
                size += len(piece)
                if size >= limit:
                    break
        except AgentError:
            pass
        return b"".join(pieces)[:limit]

    def ask(self, method: str, url: str, seconds: float, body: bytes = b"") -> tuple[int, bytes]:
        """A short question by absolute URL: status and body. Raises: as `post`."""
        response = self._send(method, url, body, seconds)
        self._release = _bound(response, Deadline(self._clock, self._clock() + seconds))
        try:
            return response.status_code, self.whole(response, 8 << 20)
        finally:
            response.close()

    def close(self) -> None:
        """Drop the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _send(
        self, method: str, url: str, body: bytes, seconds: float, meanwhile: Callable[[], object] | None = None
    ) -> httpx.Response:
        client = self._open()
        self._release()  # the connection may be kept: an earlier answer's deadline must not bound this one
        limits = httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds), pool=None)
        try:
            headers = self._headers()
            content: bytes | Iterator[bytes] | None = body or None
            if meanwhile:
                headers["Content-Length"], content = str(len(body)), _then(body, meanwhile)
            request = client.build_request(method, url, content=content, headers=headers, timeout=limits)
            return client.send(request, stream=True)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise _translated(error, self._target.base_url, seconds) from error

    def _headers(self) -> dict[str, str]:
        headers = {
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "User-Agent": f"oneshot-agent/{__version__}",
        }
        if self._target.api_key:
            headers["Authorization"] = f"Bearer {self._target.api_key}"
        return {**headers, **self._target.headers}

    def _open(self) -> httpx.Client:
        if self._client is None:
            secure = self._target.base_url.startswith("https:")
            try:
                self._client = httpx.Client(
                    verify=tls_context(self._environ) if secure else False,
                    trust_env=not is_loopback(self._target.base_url),
                    follow_redirects=False,
                )
            except (ValueError, ImportError, httpx.InvalidURL) as error:
                raise ConfigError(f"The proxy settings cannot be used: {error}", _PROXY_HINT) from None
        return self._client


def _then(body: bytes, meanwhile: Callable[[], object]) -> Iterator[bytes]:
    """The body, and what is to be done once it has been sent. In pieces: below httpx, what a socket did not take at
    once is copied, and of a long conversation that would be most of it, again and again."""
    whole = memoryview(body)
    for at in range(0, len(body), PIECE):
        yield bytes(whole[at : at + PIECE])
    meanwhile()


def tls_context(environ: Mapping[str, str]) -> httpx._types.SSLContext:  # type: ignore[name-defined]
    """The trust that https uses. Raises: `ConfigError` when a CA file or directory cannot be read."""
    import ssl

    file, folder = environ.get("SSL_CERT_FILE"), environ.get("SSL_CERT_DIR")
    try:
        if file or folder:
            return ssl.create_default_context(cafile=file or None, capath=folder or None)
        if environ.get("AGENT_TLS") == "system":
            return ssl.create_default_context()
    except (OSError, ssl.SSLError) as error:
        named = "SSL_CERT_FILE" if file else "SSL_CERT_DIR"
        raise ConfigError(
            f"The CA certificates of {named} cannot be read: {error}", f"Correct or unset {named}"
        ) from None
    import certifi

    return ssl.create_default_context(cafile=certifi.where())


def _bound(response: httpx.Response, deadline: Deadline) -> Callable[[], None]:
    """Make every further read of this answer wait no longer than the deadline leaves; returns how to end that.

    httpx sets one timeout for all reads of a body; the stream below it takes one for each read.
    """
    stream = response.extensions.get("network_stream")
    if stream is None:
        return lambda: None
    read = stream.read

    def bounded(max_bytes: int, timeout: float | None = None) -> bytes:
        data: bytes = read(max_bytes, timeout=deadline.left)
        return data

    def release() -> None:
        stream.read = read

    stream.read = bounded
    return release


def _translated(error: Exception, base_url: str, seconds: float) -> AgentError:
    """An httpx failure as one of ours."""
    from agent.wire.faults import fault

    said = str(error) or type(error).__name__
    where = base_url.split("?")[0]
    if isinstance(error, httpx.ConnectTimeout):
        return fault("connection", f"no connection to {where} within {min(CONNECT_SECONDS, seconds):g} s")
    if isinstance(error, httpx.TimeoutException):
        return fault("timeout", f"no answer from {where} within {seconds:g} s" if seconds else "no further answer")
    if "CERTIFICATE_VERIFY_FAILED" in said or "certificate verify failed" in said:
        return ConfigError(f"The certificate of {where} is not trusted", _TLS_HINT)
    if isinstance(error, httpx.ProxyError):
        return fault("connection", f"the proxy refused: {said}", hint=_PROXY_HINT)
    if isinstance(error, (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError, UnicodeError)):
        return ConfigError(f"The request to {where} cannot be made: {said}", "Check the base URL, key and headers")
    broken = fault("connection", f"{where}: {said}")
    if isinstance(error, httpx.ConnectError):
        broken.retries = 2
    return broken
