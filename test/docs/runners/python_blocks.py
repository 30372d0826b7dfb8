"""Runs the Python blocks of all pages in one process, because importing the SDK takes seconds.

Reads {"path", "folder", "environment"} from each line of standard input, and prints the status after a
record separator when the block has ended.
"""

import json
import os
import sys
import traceback

requests = os.fdopen(os.dup(0))
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

for line in requests:
    request = json.loads(line)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    status = 0
    try:
        with open(request["path"], encoding="utf-8") as file:
            code = compile(file.read(), request["path"], "exec")
        exec(code, {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    sys.stdout.write(f"\x1e{status}\x1e")
    sys.stdout.flush()
