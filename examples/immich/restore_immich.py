#!/usr/bin/env python3
"""Restores photos of an Immich server, and stacks each result on its original.

    export IMMICH_URL=http://nas:2283 IMMICH_API_KEY=... RESTORED_URL=http://127.0.0.1:8080
    examples/immich/restore_immich.py ASSET... [--set OPTION=VALUE]... [--again]

ASSET is the id at the end of a photo's address in the browser. The original is downloaded, restored and uploaded as
NAME_restored with the original's dates; the two become a stack, with the restored one on top. Nothing is changed in the
original or deleted. A photo whose stack has a restored version is left out, unless --again is given. The API key needs
asset.read, asset.download, asset.upload, stack.read and stack.create.

What is used of Immich's API: GET /api/assets/{id}, GET /api/assets/{id}/original, POST /api/assets (multipart; answers 200
and "duplicate" for a file that is there), GET /api/stacks/{id}, POST /api/stacks, whose first asset becomes the primary one.
"""
import argparse
import hashlib
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
import uuid

IMMICH = os.environ.get("IMMICH_URL", "").rstrip("/")
RESTORED = os.environ.get("RESTORED_URL", "http://127.0.0.1:8080").rstrip("/")


class Failure(Exception):
    """What went wrong with one photo, for people."""


def ask(url: str, headers: dict, body: bytes = None) -> tuple:
    """(bytes, headers) of the answer; Failure with what the server says."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
            return answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        text = error.read()
        try:
            problem = json.loads(text)
            reason = problem.get("detail") or problem.get("message") or text.decode(errors="replace")
        except ValueError:
            reason = text.decode(errors="replace")[:200]
        raise Failure(f"{urllib.parse.urlsplit(url).path} answered {error.code}: {reason}") from None
    except urllib.error.URLError as error:
        raise Failure(f"{url}: {error.reason}") from None


def immich(path: str, body: bytes = None, headers: dict = {}) -> bytes:
    return ask(IMMICH + "/api" + path, {"x-api-key": os.environ["IMMICH_API_KEY"], "Accept": "*/*", **headers}, body)[0]


def restore(picture: bytes, options: list) -> tuple:
    """(the restored picture, its extension)."""
    headers = {"Content-Type": "application/octet-stream"}
    if os.environ.get("RESTORED_TOKEN"):
        headers["Authorization"] = "Bearer " + os.environ["RESTORED_TOKEN"]
    url = f"{RESTORED}/v1/restore?{urllib.parse.urlencode(options)}"
    result, answered = ask(url, headers, picture)
    kind = answered["Content-Type"].split("/")[-1]
    return result, {"jpeg": "jpg"}.get(kind, kind)


def form(fields: dict, name: str, picture: bytes) -> tuple:
    """(body, content type) of a form with these fields and a file."""
    border = uuid.uuid4().hex
    parts = [f'--{border}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()]
    quoted = name.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")  # as browsers do
    parts.append(f'--{border}\r\nContent-Disposition: form-data; name="assetData"; filename="{quoted}"\r\n'
                 "Content-Type: application/octet-stream\r\n\r\n")
    return "".join(parts).encode() + picture + f"\r\n--{border}--\r\n".encode(), f"multipart/form-data; boundary={border}"


def upload(original: dict, name: str, picture: bytes) -> str:
    """The new asset's id."""
    fields = {"deviceAssetId": f"restored-{original['id']}-{hashlib.sha1(picture).hexdigest()}", "deviceId": "restored",
              "fileCreatedAt": original["fileCreatedAt"], "fileModifiedAt": original["fileModifiedAt"], "filename": name}
    body, kind = form(fields, name, picture)
    answer = json.loads(immich("/assets", body, {"Content-Type": kind, "x-immich-checksum": hashlib.sha1(picture).hexdigest()}))
    return answer["id"]


def stacked(original: dict) -> list:
    """The assets of the original's stack."""
    stack = original.get("stack")
    return json.loads(immich(f"/stacks/{stack['id']}"))["assets"] if stack else []


def restore_asset(asset: str, options: list, again: bool) -> None:
    original = json.loads(immich(f"/assets/{urllib.parse.quote(asset, safe='')}"))
    if original["type"] != "IMAGE":
        raise Failure("it is not a photo")
    stem = os.path.splitext(original["originalFileName"])[0] + "_restored"
    if not again and any(one["originalFileName"].startswith(stem + ".") for one in stacked(original)):
        print(f"{asset}: it has a restored version already")
        return
    picture, ext = restore(immich(f"/assets/{original['id']}/original"), options)
    new = upload(original, f"{stem}.{ext}", picture)
    immich("/stacks", json.dumps({"assetIds": [new, original["id"]]}).encode(), {"Content-Type": "application/json"})
    print(f"{asset}: restored as {new}")


def main() -> int:
    arguments = argparse.ArgumentParser(description="Restores photos of an Immich server, and stacks each result on its original.")
    arguments.add_argument("asset", nargs="+", help="id of a photo")
    arguments.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE", help="an option of POST /v1/restore")
    arguments.add_argument("--again", action="store_true", help="also where there is a restored version")
    given = arguments.parse_args()
    if not IMMICH or "IMMICH_API_KEY" not in os.environ:
        arguments.error("IMMICH_URL and IMMICH_API_KEY are not set")
    for word in given.set:
        if "=" not in word:
            arguments.error(f"{word}: an option is written OPTION=VALUE")
    failed = 0
    for asset in given.asset:
        try:
            restore_asset(asset, [tuple(word.partition("=")[::2]) for word in given.set], given.again)
        except Failure as failure:
            print(f"{asset}: {failure}", file=sys.stderr)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
