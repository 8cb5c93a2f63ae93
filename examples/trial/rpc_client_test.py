#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The client asks servers of this test: one that answers, one that is silent, one that closes at once.

usage: rpc_client_test.py CLIENT
"""

import socket
import subprocess
import sys
import threading
import time

CLIENT = sys.argv[1]


def server(answer):
    """Listens; each connection is answered by a thread. Returns its address and the list of its connections."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections = []

    def serve():
        while True:
            conn, _ = listener.accept()
            connections.append(conn)
            threading.Thread(target=answer, args=(conn,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{listener.getsockname()[1]}", connections


def echo(conn):
    conn.sendall(b"answered: " + conn.recv(512))
    conn.close()


def ask(*servers):
    began = time.monotonic()
    ran = subprocess.run([CLIENT, "hello", *servers], capture_output=True, text=True, timeout=60, check=False)
    return ran.returncode, ran.stdout, time.monotonic() - began


def main():
    fast, asked_fast = server(echo)
    silent, asked_silent = server(lambda conn: conn.recv(1 << 20))
    rude, asked_rude = server(lambda conn: conn.close())

    # The first server answers, before the second would be asked; or so late that it is: either is right.
    assert ask(fast, silent)[:2] == (0, "answered: hello\n")
    # The first is silent: the second is asked as well.
    assert ask(silent, fast)[:2] == (0, "answered: hello\n")
    assert len(asked_silent) >= 1 and len(asked_fast) == 2, (len(asked_silent), len(asked_fast))
    # No server answers: the deadline ends it, after two seconds and not before.
    before = len(asked_silent)
    code, out, took = ask(silent)
    assert (code, out) == (1, "") and took >= 2 and len(asked_silent) == before + 1, (code, out, took)
    # A failure is tried again: three times in all.
    assert ask(rude)[:2] == (1, "")
    assert len(asked_rude) == 3, len(asked_rude)
    # Without servers it says how it is used.
    assert subprocess.run([CLIENT, "hello"], capture_output=True, check=False).returncode == 2
    print("all as expected")


main()
