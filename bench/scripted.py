"""A chat-completions server for measuring: it answers at once and notes when what came and when what left.

A peer that speaks only the Responses API gets the same two words there.

The answer is prepared bytes; a short pause before the first chunk and between the first two lets the reader's waiting
begin, so that what is measured is how long a chunk takes from here to the screen, and not a queue.
"""

from __future__ import annotations

import socket
import threading
import time

PAUSE = 0.02
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
NO = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def framed(data: bytes) -> bytes:
    """One HTTP chunk, as servers send each event."""
    return b"%x\r\n%b\r\n" % (len(data), data)


CHUNK = framed(
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n'
)


ITEM = '{"type":"message","role":"assistant","id":"1","content":[{"type":"output_text","text":"word word "}]}'
RESPONSES = "".join(
    f'event: response.{kind}\ndata: {{"type":"response.{kind}",{rest}}}\n\n'
    for kind, rest in (
        ("created", '"response":{"id":"1"}'),
        ("output_item.added", f'"output_index":0,"item":{ITEM}'),
        ("output_item.done", f'"output_index":0,"item":{ITEM}'),
        ("completed", '"response":{"id":"1","usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}'),
    )
).encode()


class Server:
    """`chunks` of text for every request. Times are of `time.perf_counter`.

    `came` is the first byte of the last task request, `sent` when each of the first two chunks left, `done` when the
    last byte left; `others` counts requests that were not for an answer.
    """

    def __init__(self, chunks: int = 2) -> None:
        self.chunks = chunks
        self.came = self.done = 0.0
        self.sent: list[float] = []
        self.others = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering; returns when the thread has ended."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                try:
                    self._answer(connection)
                except OSError:
                    pass  # the client has gone

    def _answer(self, connection: socket.socket) -> None:
        data = connection.recv(1 << 20)
        came = time.perf_counter()
        head, _, body = data.partition(b"\r\n\r\n")
        fields = [field.split(b":") for field in head.lower().split(b"\r\n")]
        length = next((int(value) for name, *rest in fields if name == b"content-length" for value in rest), 0)
        size = len(body)
        while size < length:
            size += len(connection.recv(1 << 20))
        if head.startswith(b"POST /v1/responses"):
            self.came, self.sent = came, [time.perf_counter()] * 2
            connection.sendall(HEAD + framed(RESPONSES) + b"0\r\n\r\n")
            self.done = time.perf_counter()
            return
        if not head.startswith(b"POST /v1/chat/completions"):
            self.others += 1
            connection.sendall(NO)
            return
        self.came, self.sent = came, []
        connection.sendall(HEAD)
        for _ in range(min(2, self.chunks)):
            time.sleep(PAUSE)
            self.sent.append(time.perf_counter())
            connection.sendall(CHUNK)
        rest = CHUNK * 50
        for _ in range((self.chunks - 2) // 50):
            connection.sendall(rest)
        usage = b'"usage":{"prompt_tokens":%d,"completion_tokens":%d}' % (max(1, size // 4), self.chunks)
        last = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],' + usage + b"}\n\n"
        connection.sendall(framed(last) + framed(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        self.done = time.perf_counter()
