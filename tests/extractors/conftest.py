"""A program that is called tesseract and does what a test wants."""

import os

import pytest


@pytest.fixture
def tesseract(tmp_path, monkeypatch):
    """Put a shell script in the place of tesseract: `tesseract("echo text")`."""

    def install(script):
        folder = tmp_path / "bin"
        folder.mkdir()
        program = folder / "tesseract"
        program.write_text(f"#!/bin/sh\ncat >/dev/null\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return install
