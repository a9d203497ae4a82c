"""A small real service: an HTTP server, with a child of its own, that can misbehave as told.

fake_service.py PORT [fail] [deaf] [stubborn] [sick]
"""

import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Health(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(500 if Path("sick").exists() else 200)
        self.end_headers()

    def log_message(self, *_):
        pass


def main(port, *ways):
    print(f"listening on {port}", flush=True)
    if "fail" in ways:
        sys.exit("the database is missing")
    child = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    if "stubborn" in ways:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
    else:
        subprocess.Popen(
            [sys.executable, "-c", child.partition(" signal.signal")[0] + " time.sleep(600)"]
        )
    if "deaf" in ways:
        signal.pause()
    HTTPServer(("127.0.0.1", int(port)), Health).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
