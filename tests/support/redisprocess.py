"""A real Redis for tests: on a free port, with its files in a directory of the test."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from ports import free_port

REDIS_SERVER = shutil.which("redis-server")
needs_redis = pytest.mark.skipif(REDIS_SERVER is None, reason="redis-server is not installed")


class RedisProcess:
    """`redis-server` that keeps every acknowledged write; it may be killed, stopped and started again."""

    def __init__(self, directory: Path, *options: str) -> None:
        directory.mkdir(exist_ok=True)
        self.directory, self.options, self.port = directory, options, free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        command = [REDIS_SERVER, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)]
        command += ["--save", "", "--appendonly", "yes", "--appendfsync", "always", *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(16).startswith(b"+PONG"):
                        return
            except OSError:
                assert self.process.poll() is None, "redis-server ended at once"
            assert time.monotonic() < deadline, "redis-server did not start"
            time.sleep(0.02)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(timeout=120)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def command(self, *words: str) -> None:
        import redis

        with redis.Redis.from_url(self.url) as database:
            database.execute_command(*words)

    def clear(self) -> None:
        self.command("FLUSHALL")

    def __enter__(self) -> RedisProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
