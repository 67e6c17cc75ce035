"""The example plug-ins, installed with pip into an environment of their own."""

import signal
import subprocess
import sys
import sysconfig
import threading
from contextlib import contextmanager
from pathlib import Path

PLUGINS = Path(__file__).parents[2] / "examples" / "plugins"
SECONDS = 300


class Environment:
    """A virtual environment that sees what this one has, and what pip puts there."""

    def __init__(self, folder, settings):
        self._folder = folder
        self._settings = settings
        self._python = folder / "env" / "bin" / "python"
        made = [sys.executable, "-m", "venv", "--without-pip", folder / "env"]
        subprocess.run(made, check=True, timeout=SECONDS)
        [packages] = (folder / "env" / "lib").glob("python*/site-packages")
        ours = sysconfig.get_paths()["purelib"]
        line = f"import site; site.addsitedir({ours!r})\n"
        (packages / "ours.pth").write_text(line)

    def install(self, *names):
        offline = ("--no-deps", "--no-build-isolation", "--no-index")
        self._pip("install", *offline, *(PLUGINS / name for name in names))

    def uninstall(self, package):
        self._pip("uninstall", "--yes", package)

    def run(self, *arguments, **settings):
        """Run a command of `backburner` to its end."""
        return self._ended(self._command(*arguments), **settings)

    @contextmanager
    def running(self, *arguments, says, **settings):
        """Run a process that stays; yield it when it has said where it is."""
        process = Process(self._command(*arguments), self._folder, self._env(settings))
        try:
            process.url = process.says(says).split()[-1]
            yield process
        finally:
            process.stop()

    def serving(self, *arguments, **settings):
        """Serve on a free port."""
        command = ("serve", "--port", "0", *arguments)
        return self.running(*command, says=" is ready at ", **settings)

    def _pip(self, *arguments):
        pip = [sys.executable, "-m", "pip", "--python", self._python]
        ended = self._ended([*pip, "--disable-pip-version-check", *arguments])
        assert 0 == ended.returncode, ended.stderr

    def _command(self, *arguments):
        return [self._python, "-P", "-m", "backburner", *arguments]

    def _env(self, settings):
        return {**self._settings, **settings}

    def _ended(self, command, **settings):
        return subprocess.run(
            command,
            cwd=self._folder,
            env=self._env(settings),
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )


class Process:
    """A process that stays, and the lines that it writes; `url` is where it listens."""

    def __init__(self, command, folder, env):
        self.lines = []
        self._news = threading.Condition()
        self._has_ended = False
        self._popen = subprocess.Popen(
            command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def says(self, text):
        """Return the first line with this text; wait until it is written."""

        def found():
            return next((line.strip() for line in self.lines if text in line), None)

        with self._news:
            self._news.wait_for(lambda: found() or self._has_ended, SECONDS)
            assert found(), f"it did not say {text!r}: {self.lines}"
            return found()

    def stop(self):
        """Stop it as an operator does."""
        self._popen.send_signal(signal.SIGTERM)
        self._popen.wait(timeout=SECONDS)
        self._reader.join(timeout=SECONDS)
        self._popen.stderr.close()

    def _read(self):
        for line in self._popen.stderr:
            with self._news:
                self.lines.append(line)
                self._news.notify_all()
        with self._news:
            self._has_ended = True
            self._news.notify_all()
