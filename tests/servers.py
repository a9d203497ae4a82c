"""HTTP servers that tests start, on this machine alone."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def serving(handler, **state):
    """A server with this handler; `site` is its address, `state` more attributes."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.site = f"http://127.0.0.1:{server.server_port}"
    server.handle_error = lambda *_: None  # a client that gives up is what some tests are about
    server.asked, server.may_answer = [], threading.Event()
    server.may_answer.set()
    vars(server).update(state)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Bodies(BaseHTTPRequestHandler):
    """Serves `server.bodies` by path, whatever the query is.

    Notes what was `asked`, and answers once it `may_answer`.
    """

    def do_GET(self):
        self.server.asked.append(self.path)
        self.server.may_answer.wait(10)
        body = self.server.bodies[self.path.partition("?")[0].strip("/")]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass
