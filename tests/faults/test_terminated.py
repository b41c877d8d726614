"""A connection that PostgreSQL ends at the worst moment: after a statement's answer, in place of the one to the pipeline's sync. A
proxy between the server and PostgreSQL does that; pg_terminate_backend meets the moment once in thousands of requests."""

import socket
import struct
import threading

import harness
import pytest
from harness import wait_until

FIELDS = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
FATAL = b"E" + struct.pack("!i", 4 + len(FIELDS)) + FIELDS


class Terminator:
    """Forwards connections to PostgreSQL's socket. While `is_on`, it replaces each ReadyForQuery by FATAL and closes."""

    def __init__(self, folder, postgres):
        self.is_on, self.target = False, f"{postgres.folder}/.s.PGSQL.5432"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / ".s.PGSQL.5432"))
        self.listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client = self.listener.accept()[0]
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.target)
            threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
            threading.Thread(target=self._answers, args=(client, server), daemon=True).start()

    @staticmethod
    def _requests(client, server):
        try:
            while data := client.recv(65536):
                server.sendall(data)
        except OSError:
            pass
        server.close()

    def _answers(self, client, server):
        answers, is_ended = server.makefile("rb"), False
        try:
            while not is_ended and (head := answers.read(5)):
                is_ended = self.is_on and head[:1] == b"Z"
                body = answers.read(struct.unpack("!i", head[1:])[0] - 4)
                client.sendall(FATAL if is_ended else head + body)
        except (OSError, ValueError):
            pass
        if is_ended:
            self.is_on = False
            threading.Event().wait(1)  # the server reads the answer before it learns of the end
        client.close()


@pytest.fixture
def terminator(tmp_path, postgres):
    return Terminator(tmp_path, postgres)


def test_a_connection_that_ends_in_place_of_a_sync_is_answered_503(start, database, tmp_path, terminator):
    server = start(harness.Server, f"{database} host={tmp_path} sslmode=disable gssencmode=disable", options=("--workers", "1"))
    assert server.request("GET", "/v1/jobs").status == 200  # its statements are prepared from now on

    def ended():
        """None when another thread's connection was ended."""
        terminator.is_on = True
        answer = server.request("GET", "/v1/jobs")
        assert answer.status in (200, 503), (answer, server.messages[-2000:])
        return answer if answer.status == 503 else None

    wait_until(ended, 30, "the connection of the request to be ended")
    terminator.is_on = False
    wait_until(lambda: server.request("GET", "/v1/jobs").status == 200, 30, "the server to connect again")
