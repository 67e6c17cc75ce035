"""
A Python process that has imported the product and forks programs on request.

`tests/warm.py` starts it with the number of a socket and asks it by messages of JSON
with three file descriptors. A program is forked twice, and its first parent ends: the
process that asked has declared itself the reaper of orphans and so becomes its parent.
Nothing here may start a thread, a loop or a connection, which no fork survives.
"""

import atexit
import ctypes
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import socket
import sys
import threading
import time
import types
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PACKAGES = ("backburner", "backburner_apps")
"""All modules of these are imported."""
LEFT_OUT = (
    ".__main__",
    ".aws",  # reads the environment
    ".embedding",  # starts threads
    ".migrations.env",
    ".testing",
    ".versions",
)
"""Parts of the names of modules that are not."""
PRELOADED = (
    "aiormq",
    "alembic.command",
    "alembic.config",
    "anyio._backends._asyncio",
    "asyncpg",
    "backburner_apps.documents.embedding.folder",
    "encodings.idna",
    "fastapi",
    "genai_prices",
    "httpcore2",
    "httpx2",
    "markdown_it",
    "numpy",
    "openai.resources.chat.completions",
    "openai.lib.streaming.chat",
    "rich.console",
    "rich.table",
    "semantic_text_splitter",
    "sqlalchemy.dialects.sqlite",
    "typer._click.decorators",
    "typer.rich_utils",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.protocols.websockets.websockets_sansio_impl",
    "uvloop",
    "websockets.server",
)
"""What they import when they need it."""
LARGEST = 1 << 18
LARGE = 2 << 20
MADV_COLLAPSE = 25


def main(number: str, *more: str) -> None:
    """Import everything, then fork until the other side hangs up."""
    channel = socket.socket(fileno=int(number))
    for name in (*PRELOADED, *more, *modules()):
        with suppress(ImportError):
            importlib.import_module(name)
    load_authorities_once()
    build_commands_once()
    threads = len(list(Path("/proc/self/task").iterdir()))
    gc.collect()
    gc.freeze()  # else the children's collections copy all these pages
    use_large_pages()
    channel.send(json.dumps({"threads": threads}).encode())
    while True:
        message, fds, _, _ = socket.recv_fds(channel, LARGEST, 3)
        if not message:
            return
        request = json.loads(message)
        pid = fork_twice()
        if pid == 0:
            become(request, fds)
            return
        for fd in fds:
            os.close(fd)
        channel.send(json.dumps({"pid": pid}).encode())


def load_authorities_once() -> None:
    """Have no program load all certificate authorities: clients would, one by one."""
    import httpcore2

    load = functools.cache(httpcore2.default_ssl_context)
    for words in ({}, {"_trust_env": True}, {"_trust_env": False}):
        load(**words)
    httpcore2.default_ssl_context = load


def build_commands_once() -> None:
    """Have no program build all commands, as the command line does at each start."""
    import typer.main

    from backburner.cli import app

    typer.main.get_command = functools.cache(typer.main.get_command)
    typer.main.get_command(app)


def use_large_pages() -> None:
    """
    Have the kernel join pages: a fork copies an entry for each of them.

    Joined, 200 MB are 100 entries instead of 50,000, and a fork takes a third of the
    time. Kernels that do not join pages on request refuse, and nothing is different.
    """
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for line in Path("/proc/self/maps").read_text().splitlines():
        area, rights, _, _, _, *name = line.split()
        if rights != "rw-p" or name not in ([], ["[heap]"]):
            continue
        start, end = (int(place, 16) for place in area.split("-"))
        for page in range(-(-start // LARGE) * LARGE, end - LARGE + 1, LARGE):
            advise(page, LARGE, MADV_COLLAPSE)


def modules() -> Iterator[str]:
    """Find all modules of the product that may be imported before they are needed."""
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(
            path, f"{package}.", onerror=lambda _: None
        ):
            if not any(f"{left}." in f"{module.name}." for left in LEFT_OUT):
                yield module.name


def fork_twice() -> int:
    """Fork a process that is an orphan; return its id here and 0 in it."""
    reads, writes = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid == 0:
            return 0
        os.write(writes, str(pid).encode())
        os._exit(0)
    os.waitpid(between, 0)
    pid = int(os.read(reads, 20))
    os.close(reads)
    os.close(writes)
    return pid


def become(request: dict, fds: list[int]) -> None:
    """Be the program that was asked for, as if `python` had just been started."""
    _take_files(fds)
    if request["session"]:
        os.setsid()
    if request["group"] >= 0:
        os.setpgid(0, request["group"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    _renew_streams(unbuffered=request["unbuffered"])
    if any(name.startswith("COVERAGE_PROCESS_") for name in os.environ):
        import coverage

        coverage.process_startup()
    try:
        _run(request)
    except SystemExit as ended:
        _end(_code(ended))
    else:
        _end(0)


def _take_files(fds: list[int]) -> None:
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with suppress(OSError):
                os.close(int(name))


def _end(code: int) -> None:
    """
    End as Python does, but take nothing down: that would copy every page it was given.

    An error that nobody has caught does not come here; Python tells it and ends.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # closed, or nobody reads it: Python knows what to do
        sys.exit(code)
    os._exit(code)


def _code(ended: SystemExit) -> int:
    if ended.code is None or isinstance(ended.code, int):
        return (ended.code or 0) & 0xFF
    print(ended.code, file=sys.stderr)
    return 1


def _renew_streams(*, unbuffered: bool) -> None:
    raw = unbuffered or bool(os.environ.get("PYTHONUNBUFFERED"))
    encoding = sys.stdout.encoding

    def writer(fd: int, errors: str, *, by_line: bool) -> io.TextIOWrapper:
        file = open(fd, "wb", buffering=0 if raw else -1, closefd=False)
        return io.TextIOWrapper(
            file, encoding, errors, line_buffering=by_line, write_through=raw
        )

    sys.stdin = sys.__stdin__ = open(
        0, encoding=encoding, errors=sys.stdin.errors, closefd=False
    )
    sys.stdout = sys.__stdout__ = writer(1, sys.stdout.errors, by_line=os.isatty(1))
    sys.stderr = sys.__stderr__ = writer(2, "backslashreplace", by_line=True)


def _run(request: dict) -> None:
    program, arguments = request["program"], request["arguments"]
    here = sys.modules["__main__"] = types.ModuleType("__main__")
    here.__builtins__ = __builtins__
    importlib.invalidate_caches()
    if request["way"] == "-m":
        _lead(os.getcwd(), request)
        sys.argv = ["-m", *arguments]
        runpy._run_module_as_main(program)
        return
    if request["way"] == "-c":
        _lead("", request)
        sys.argv = ["-c", *arguments]
        code = compile(program, "<string>", "exec")
    else:
        _lead(os.path.dirname(os.path.realpath(program)), request)
        sys.argv = [program, *arguments]
        here.__file__ = program
        code = compile(Path(program).read_bytes(), program, "exec")
    exec(code, here.__dict__)


def _lead(folder: str, request: dict) -> None:
    """Have a folder searched first for modules, unless `-P` forbids it."""
    if not request["safe"]:
        sys.path.insert(0, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
