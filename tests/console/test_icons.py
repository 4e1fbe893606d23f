"""Copied drawings are what VENDOR.md says they are."""

import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ICONS = ROOT / "templates/console/icons"


def test_every_icon_is_listed_with_its_hash_and_used():
    listed = dict(re.findall(r"\| (\S+\.svg) \| ([0-9a-f]{64}) \|", (ICONS / "VENDOR.md").read_text()))
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in ICONS.glob("*.svg")}

    assert listed == files
    sources = [*ROOT.glob("templates/**/*.html"), ROOT / "platform/console/context.py"]
    text = "\n".join(path.read_text() for path in sources)
    assert [name for name in files if f'"{name.removesuffix(".svg")}"' not in text] == []
