"""`ranges.py BYTES COMMAND...`: runs a command, in which {url} is a file of that size. Its server gives ranges, too."""

import http.server
import subprocess
import sys
import threading


class Ranges(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        size = int(sys.argv[1])
        asked = self.headers.get("Range", "")
        first, _, last = asked.removeprefix("bytes=").partition("-")
        begin, end = int(first or 0), min(int(last or size), size - 1)
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {begin}-{end}/{size}")
        self.send_header("Content-Length", str(end - begin + 1))
        self.end_headers()
        try:
            self.wfile.write(bytes(end - begin + 1))
        except OSError:
            pass  # whoever asked has gone

    def log_message(self, *words: object) -> None:
        pass


def main() -> int:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/file"
    done = subprocess.run([word.replace("{url}", url) for word in sys.argv[2:]], stdout=subprocess.DEVNULL)
    return int(done.returncode != 0)


sys.exit(main())
