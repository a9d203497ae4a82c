"""A server that does what servers do wrong, and what it should have sent."""

import gzip
import hashlib
import re
from http.server import BaseHTTPRequestHandler

from pipeline.fetching.request import Patience

BODY = b"The clock strikes seven.\n" * 100_000  # a few blocks
SHA256 = hashlib.sha256(BODY).hexdigest()
HTML = b"\n <!DOCTYPE html><html><body>Please log in</body></html>"
CUT = 1_000_000  # where a body breaks off
ETAG = {"ETag": '"v1"'}
DATED = {"Last_Modified": "Sat, 01 Nov 2025 10:00:00 GMT"}
QUICK = Patience(connect_s=2, read_s=0.2, attempts=3, backoff_s=0.01, max_wait_s=0.05)


class Misbehaving(BaseHTTPRequestHandler):
    """Answers by path; `calls` counts requests, `asked` keeps their headers."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        name = self.path.split("?")[0].rsplit("/", 1)[-1]
        self.server.calls[name] += 1
        self.server.asked.append(self.headers)
        getattr(self, f"answer_{re.sub(r'[^a-z]', '_', name)}", self.answer_missing)()

    def send(self, body, status=200, **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        if not {"Content_Length", "Transfer_Encoding"} & headers.keys():
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_missing(self):
        self.send(b"<html>not here</html>", status=404)

    def answer_corpus_en(self):
        self.send(BODY)

    def answer_forbidden(self):
        self.send(b"", status=403)

    def answer_busy(self):
        self.send(b"", 503) if self.server.calls["busy"] < 3 else self.send(BODY)

    def answer_patient(self):
        if self.server.calls["patient"] == 1:
            return self.send(b"", 429, Retry_After=self.server.retry_after)
        return self.send(BODY)

    def answer_broken(self):
        self.send(b"", status=500)

    def answer_short(self):
        self.send(BODY[:1000], Content_Length=str(len(BODY)))
        self.close_connection = True

    def answer_short_once(self):
        if self.server.calls["short-once"] == 1:
            return self.answer_short()
        return self.send(BODY)

    def answer_chunks(self):
        self.send(b"5\r\nhello\r\n", Transfer_Encoding="chunked")  # the last chunk never comes
        self.close_connection = True

    def answer_loop(self):
        self.send(b"", status=302, Location="/loop")

    def answer_moved(self):
        self.send(b"", status=301, Location="/corpus.en")

    def answer_to_file(self):
        self.send(b"", status=302, Location="file:///etc/hostname")

    def answer_stall(self):
        self.send(BODY[:10], Content_Length=str(len(BODY)))
        self.server.released.wait(5)

    def answer_packed_en(self):
        self.send(gzip.compress(BODY), Content_Encoding="gzip")

    def answer_packed_en_gz(self):
        self.send(gzip.compress(BODY, mtime=0), Content_Encoding="gzip")

    def answer_brotli(self):
        self.send(b"\x0b\x02\x80", Content_Encoding="br")

    def answer_page(self):
        self.send(HTML)

    def answer_chunked(self):
        self.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY), Transfer_Encoding="chunked")

    def answer_no_range(self):
        self.send(b"", status=416)

    def answer_file(self):
        """`script` says how each answer departs from a good server's; it breaks off after `cut`."""
        plan = self.server.script.pop(0) if self.server.script else {}
        body, cut, start = plan.get("body", BODY), plan.get("cut"), self.start_wanted(plan)
        if start == "none":
            return self.send(
                b"", 416, **plan.get("headers", {"Content_Range": f"bytes */{len(body)}"})
            )
        status, rest, place = 200, body, {}
        if start is not None:
            status, rest = 206, body[start:]
            place = {"Content_Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}
        headers = place | plan.get("validator", ETAG) | plan.get("headers", {})
        self.server.sent += len(rest[:cut])
        self.send(rest[:cut], status, Content_Length=str(len(rest)), **headers)
        self.close_connection = True
        return None

    def start_wanted(self, plan):
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        known = plan.get("knows", [*plan.get("validator", ETAG).values(), None])
        if not wanted or plan.get("ignores_range") or self.headers["If-Range"] not in known:
            return None
        start = int(wanted[1])
        return start if start < len(plan.get("body", BODY)) else "none"

    def log_message(self, *_):
        pass
