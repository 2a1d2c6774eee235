"""Starts a command that waits for standard input, sends Ctrl-C, and prints how it ended."""

import signal
import subprocess
import sys
import time

process = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
deadline = time.monotonic() + 20
code = None
while code is None and time.monotonic() < deadline:
    # The command may not have got to its handler yet: a signal before that ends it with -2.
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    try:
        code = process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        pass
process.kill()
print(code, process.stderr.read().decode())
