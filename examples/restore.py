#!/usr/bin/env python3
"""Restores one picture by a server: examples/restore.py PHOTO RESULT [OPTION=VALUE]...

The server is that of RESTORED_URL, and RESTORED_TOKEN is sent if it is set. Python's own library is enough: the body is the
picture itself, and the options stand in the query.
"""
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request


def restore(picture: bytes, options: dict) -> bytes:
    """The restored picture; RuntimeError with the server's reason if there is none."""
    url = os.environ.get("RESTORED_URL", "http://127.0.0.1:8080") + "/v1/restore?" + urllib.parse.urlencode(options)
    headers = {"Content-Type": "application/octet-stream"}
    if os.environ.get("RESTORED_TOKEN"):
        headers["Authorization"] = "Bearer " + os.environ["RESTORED_TOKEN"]
    for attempt in range(5):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, picture, headers)) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            problem = error.read()
            if error.code in (429, 503) and attempt < 4:  # busy: it says when to come again
                time.sleep(float(error.headers.get("Retry-After", 1)))
                continue
            try:
                reason = json.loads(problem)["detail"]
            except (ValueError, KeyError):
                reason = f"the server answered {error.code}"
            raise RuntimeError(reason) from None
        except urllib.error.URLError as error:
            raise RuntimeError(f"{url}: {error.reason}") from None
    raise AssertionError


if __name__ == "__main__":
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    for word in sys.argv[3:]:
        if "=" not in word:
            print(f"{word}: an option is written OPTION=VALUE", file=sys.stderr)
            sys.exit(2)
    try:
        with open(sys.argv[1], "rb") as file:
            result = restore(file.read(), dict(word.split("=", 1) for word in sys.argv[3:]))
        with open(sys.argv[2], "wb") as file:
            file.write(result)
    except (OSError, RuntimeError, ValueError) as error:  # ValueError: RESTORED_URL is no address
        sys.exit(str(error))
