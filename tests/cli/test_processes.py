"""The command line as a process: signals, pipes, terminals, help."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from metricforge_cases.shell import COMMANDS, ROOT, run

import metricforge as mf
from metricforge.tables import writing


def start(*words, code=None, **options):
    what = ["-m", "metricforge", *words] if code is None else ["-c", code, *words]
    return subprocess.Popen(
        [sys.executable, *what], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


SLOW = """
import sys, time
import metricforge as mf
from metricforge.cli.program import main

class Watch:
    @mf.hookimpl
    def metricforge_step(self, event):
        sys.stdout.write("step\\n")
        sys.stdout.flush()
        time.sleep(0.2)

mf.register(Watch(), name="watch")
sys.exit(main(sys.argv[1:]))
"""


def test_an_interrupted_run_exits_with_130_and_leaves_nothing_half_written(here):
    (here / "x.metric").write_text("the old one")
    listed = sorted(path.name for path in here.iterdir())
    words = ["learn", "toy.csv", "--label", "class", "--drop", "group", "--method", "lpdesign"]
    process = start(*words, "-o", "x.metric", "--report", "r.html", code=SLOW)
    assert process.stdout.readline() == "step\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "metricforge: interrupted; nothing is left half-written\n"
    assert sorted(path.name for path in here.iterdir()) == listed
    assert (here / "x.metric").read_text() == "the old one"


@pytest.mark.parametrize(
    "words",
    [["learn", "--config", "pipe"], ["transform", "pipe", "toy.npy"], ["learn", "pipe.csv", "--label", "class"]],
)
def test_a_pipe_is_refused_instead_of_waited_for(here, words):
    for name in ("pipe", "pipe.csv"):
        os.mkfifo(here / name)
    process = start(*words)
    try:
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 2
    assert "is a pipe or a device, not a file" in err


SLOW_WRITER = """
import sys, time
import numpy as np
from metricforge.cli.program import main

def save(file, *_, **__):
    file.write(b"half")
    file.flush()
    sys.stdout.write("writing\\n")
    sys.stdout.flush()
    time.sleep(60)

np.save = save
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def hangup_ends():
    """The default action of SIGHUP, also where the suite runs under nohup; child processes inherit it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", 130)])
@pytest.mark.usefixtures("hangup_ends")
def test_signals_that_end_a_run_leave_nothing_half_written(here, name, code):
    listed = sorted(path.name for path in here.iterdir())
    process = start("transform", "python.metric", "bare.csv", "-o", "e.npy", code=SLOW_WRITER)
    assert process.stdout.readline() == "writing\n"
    assert len(list(here.glob(".*.part"))) == 1
    process.send_signal(getattr(signal, name))
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert err.endswith("; nothing is left half-written\n")
    assert err.count("\n") == 1
    assert sorted(path.name for path in here.iterdir()) == listed


@pytest.mark.usefixtures("hangup_ends")
def test_the_callers_signal_handlers_stay(here, capsys):
    def own(*_):
        pass

    old = signal.signal(signal.SIGTERM, own)
    try:
        assert run("plugins") == 0
        assert signal.getsignal(signal.SIGTERM) is own
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, old)


@pytest.mark.parametrize("name", ["e.csv", "e.npy"])
def test_interrupted_while_writing(here, monkeypatch, capsys, name):
    def lines(*_, **__):
        yield "half\n"
        raise KeyboardInterrupt

    def save(file, *_, **__):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(writing, "as_text", lines)
    monkeypatch.setattr(writing.np, "save", save)
    (here / name).write_text("the old one")
    listed = sorted(path.name for path in here.iterdir())
    assert run("transform", "python.metric", "bare.csv", "-o", name) == 130
    assert (here / name).read_text() == "the old one"
    assert sorted(path.name for path in here.iterdir()) == listed


def test_a_full_disk_is_one_sentence(here, monkeypatch, capsys):
    def save(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing.np, "save", save)
    assert run("transform", "python.metric", "bare.csv", "-o", "e.npy") == 2
    assert "No space left on device" in capsys.readouterr().err
    assert not list(here.glob(".*.part"))


@pytest.mark.parametrize("rows", ["toy.npy", "few.npy"])  # more than a buffer holds, and less
def test_a_reader_who_has_seen_enough_is_no_error(here, rows):
    np.save("few.npy", np.ones((2, 11)))
    end, closed = os.pipe()
    os.close(end)
    done = subprocess.run(
        [sys.executable, "-m", "metricforge", "distance", "python.metric", rows],
        stdout=closed,
        stderr=subprocess.PIPE,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    os.close(closed)
    assert (done.returncode, done.stderr) == (0, b"")


def test_help_is_there_for_every_command_and_loads_nothing_heavy():
    loaded = (
        "import sys; from metricforge.cli.program import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    with start(code=loaded) as process:
        out, modules = process.communicate()
    assert all(command in out for command in COMMANDS)
    assert not {"numpy", "scipy", "sklearn", "dask", "matplotlib"} & set(modules.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(command, capsys):
    with pytest.raises(SystemExit) as caught:
        run(command, "--help")
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert ("Euclidean" in out) == (command == "transform")
    assert f"usage: metricforge {command}" in out
    assert "--json" in out


def test_a_bar_on_a_terminal(here):
    terminal, end = pty.openpty()
    words = ["learn", "toy.csv", "--label", "class", "--drop", "group", "--method", "lpdesign", "-o", "x.metric"]
    code = "from metricforge.registry import progress; progress._Bar.delay = progress._Bar.interval = 0.0\n" + SLOW
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdout=subprocess.DEVNULL,
        stderr=end,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(end)
    seen = b""
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        seen += chunk
    os.close(terminal)
    assert process.wait(timeout=60) == 0
    assert b"lpdesign on 100 rows" in seen


def test_the_module_is_the_command():
    with start("--version") as process:
        out, _ = process.communicate()
    assert out == f"metricforge {mf.__version__}\n"


def test_the_script_is_installed_under_its_name():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"metricforge": "metricforge.cli.program:main"}
