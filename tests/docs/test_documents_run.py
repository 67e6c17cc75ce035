"""What the documents tell the reader to type works when typed."""

import ast
import re
import sys
from pathlib import Path

import pytest

import backburner
from tests import warm
from tests.ports import held_port

ROOT = Path(__file__).parents[2]
SECONDS = 60
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)

FLOWS = (ROOT / "docs" / "flows.md").read_text()
AI = (ROOT / "docs" / "ai.md").read_text()
LANES = (ROOT / "docs" / "lanes.md").read_text()
BUDGETS = (ROOT / "docs" / "budgets.md").read_text()
USAGE = (ROOT / "docs" / "usage.md").read_text()
APPLICATIONS = (ROOT / "docs" / "applications.md").read_text()
COMPLETIONS = (ROOT / "docs" / "completions.md").read_text()
HTTP_BLOCKS = [
    *BLOCK.findall((ROOT / "docs" / "http.md").read_text()),
    *BLOCK.findall(FLOWS),
    *BLOCK.findall(BUDGETS),
    *BLOCK.findall(USAGE),
    *BLOCK.findall(COMPLETIONS),
]
CLIENT_BLOCKS = PYTHON.findall((ROOT / "docs" / "client.md").read_text())
PROGRAMS = PYTHON.findall(FLOWS + COMPLETIONS + LANES + BUDGETS + USAGE + AI)
README = (ROOT / "README.md").read_text()
HANDLERS = (ROOT / "docs" / "handlers.md").read_text()


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with warm.Popen(
        [
            *(sys.executable, "-m", "backburner", "serve", "--dev", "--port", "0"),
            *("--app", "backburner.demo:app"),
            *("--store", f"sqlite:///{folder}/jobs.db"),
        ],
        stderr=warm.PIPE,
        text=True,
    ) as server:
        ready = next(line for line in server.stderr if " is ready at " in line)
        yield ready.split()[-1].rstrip("/")
        server.terminate()
        server.communicate(timeout=SECONDS)


def run(arguments, **how):
    """Run a program that must succeed; return what it prints."""
    done = warm.run(
        arguments, capture_output=True, text=True, timeout=SECONDS, check=True, **how
    )
    return done.stdout


def check_promises(block, **how):
    """Run a program; it prints what the comments behind its `print` calls say."""
    promised = re.findall(r"print\(.*# (.*)$", block, re.MULTILINE)
    told = run([sys.executable, "-c", block], **how)
    assert promised
    assert [] == [line for line in promised if line not in told]


@pytest.mark.parametrize("block", HTTP_BLOCKS)
def test_a_block_for_the_shell_shows_what_it_says(url, block):
    lines = block.splitlines()
    script = "\n".join(line for line in lines if not line.startswith("#"))
    promised = [line.removeprefix("# ") for line in lines if line.startswith("#")]

    told = run(["/bin/bash", "-euc", script], env={"URL": url, "PATH": "/usr/bin:/bin"})

    shown = told.replace(": ", ":")
    missing = [p for p in promised if p.rstrip("…").replace(": ", ":") not in shown]
    assert [] == missing


@pytest.mark.parametrize("block", CLIENT_BLOCKS)
def test_a_block_of_the_client_guide_prints_what_it_says(url, block):
    check_promises(block, env={"BACKBURNER_URL": url})


@pytest.mark.parametrize("block", PROGRAMS)
def test_a_program_of_a_guide_prints_what_it_says(tmp_path, block):
    check_promises(block, cwd=tmp_path)


def test_the_application_of_the_guide_runs(tmp_path):
    program = "\n".join(
        (
            "import asyncio",
            "from backburner import Backburner",
            *PYTHON.findall(APPLICATIONS),
            "async def main():",
            "    async with Backburner(store='sqlite:///jobs.db', apps=[app]) as bb:",
            "        await bb.start_worker()",
            "        ticket = await bb.submit('songs.limit', None)",
            "        print(await ticket.result())",
            "asyncio.run(main())",
        )
    )

    told = run([sys.executable, "-c", program], cwd=tmp_path, env={"SONGS_LIMIT": "8"})

    assert "8\n" == told


IMPORTS = (ast.Import, ast.ImportFrom)
TOP_LEVEL_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


SPENDING = """
import asyncio
from backburner import Backburner, Settings

async def main():
    settings = Settings(store="sqlite:///jobs.db", ai="mock")
    async with Backburner(settings, apps=[app]) as bb:
        await bb.start_worker()
        tickets = [await bb.submit(summarise, Text(text="it")) for _ in range(2)]
        print([(await ticket.result()).title for ticket in tickets])
        [(_, limit, balance)] = await bb.budgets.accounts()
        print(limit, balance.settled, balance.held)

asyncio.run(main())
"""


def test_the_spending_of_the_readme_is_counted(tmp_path):
    first, *others = PYTHON.findall(README)
    [block] = [found for found in others if "Budget(" in found]
    (tmp_path / "words.py").write_text(first)

    told = run([sys.executable, "-c", block + SPENDING], cwd=tmp_path)

    assert "['it', 'it']\n100000 170 0\n" == told


def test_the_program_of_the_readme_runs_a_job_and_a_flow(tmp_path):
    first, inside = PYTHON.findall(README)[:2]
    (tmp_path / "words.py").write_text(first)
    (tmp_path / "program.py").write_text(inside)

    told = run([sys.executable, "program.py"], cwd=tmp_path)

    assert "3\n4\n" == told


@pytest.mark.parametrize("block", PYTHON.findall(README + HANDLERS))
def test_a_block_of_the_readme_imports_what_it_uses(block):
    tree = compile(block, "README.md", "exec", ast.PyCF_ONLY_AST | TOP_LEVEL_AWAIT)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    used = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    imports = [node for node in ast.walk(tree) if isinstance(node, IMPORTS)]
    imported = {alias.name for node in imports for alias in node.names}

    known = {*backburner.__all__, "asyncio", "timedelta", "BaseModel"}
    assert set() == (used & known) - imported


def pasted(tmp_path, script, *programs):
    """Paste a script into a shell in a folder with programs, and end its server."""
    for name, program in programs:
        (tmp_path / name).write_text(program)
    with held_port() as port:
        ended = warm.run(
            ["/bin/bash", "-c", f"{script.replace('8765', str(port))}\nkill %1; wait"],
            cwd=tmp_path,
            env={
                "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
                "BACKBURNER_PORT": str(port),
                "BACKBURNER_URL": f"http://127.0.0.1:{port}",
            },
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    return ended.stdout.replace(" ", ""), ended.stderr


def test_the_quickstart_of_the_readme_works_when_pasted(tmp_path):
    [script] = [block for block in BLOCK.findall(README) if "serve --dev" in block]

    printed, errors = pasted(tmp_path, script, ("words.py", PYTHON.findall(README)[0]))

    assert '{"words":3}' in printed, errors
    assert '"capability":"count-words"' in printed


def test_the_model_call_of_the_readme_works_when_pasted(tmp_path):
    first, *others = PYTHON.findall(README)
    [model] = [found for found in others if "Budget(" in found]
    [serve] = re.findall(r"`(backburner serve .*--app ai:app.*?)`", README)
    [submit] = re.findall(r"`(backburner submit summarise .*?)`", README)
    ready = next(line for line in README.splitlines() if line.startswith("curl -s --r"))

    script = f"{serve}\n{ready}\n{submit}"
    printed, errors = pasted(tmp_path, script, ("words.py", first), ("ai.py", model))

    assert '"title":"aticketnow"' in printed, errors
    assert (tmp_path / "ai.db").exists()


def test_the_first_capability_has_at_most_fifteen_lines_of_code():
    first = PYTHON.findall(README)[0]

    assert 15 >= len([line for line in first.splitlines() if line.strip()])
