"""Commands come from the registry: listed, loaded when typed, and harmless where they are broken."""

from __future__ import annotations

import subprocess
import sys

import pytest

import metricforge as mf
from metricforge.cli.program import command_entries, main
from metricforge.errors import InputError


def run(*words):
    return main([str(word) for word in words])


def greet(args):
    mf.cli.write_line(f"hello {args.name}, json={args.json}, {args.typed}")


GREET = mf.Command("say hello in 100 % of cases", greet, lambda parser: parser.add_argument("name"))


def test_a_registered_command_runs_by_its_name(plug, capsys):
    plug(("command", "greet", GREET))
    assert run("greet", "you", "--json") == 0
    assert capsys.readouterr().out == "hello you, json=True, metricforge greet you --json\n"
    assert run("greet") == 2
    assert "the following arguments are required: name; see metricforge greet --help" in capsys.readouterr().err
    assert run("greeet") == 2
    assert "command='greeet' is unknown; did you mean 'greet'?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run("greet", "--help")
    assert "Say hello in 100 % of cases." in capsys.readouterr().out


def test_the_cores_commands_come_first_then_those_of_plugins(plug):
    plug(("command", "a-first", GREET))
    names = [entry.name for entry in command_entries()]
    own = names.index("reproduce")
    assert {"demo", "learn", "transform", "plugins", "datasets"} <= set(names[:own])
    assert "a-first" in names[own:]


BROKEN = {
    "missing module": ("no_such_module:COMMAND", "ModuleNotFoundError"),
    "no command": (print, "is a builtin_function_or_method; its target must be a mf.Command"),
    "exits": ("exiting_module:COMMAND", "SystemExit: 3"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_command_is_listed_and_harms_no_other(plug, capsys, case, tmp_path, monkeypatch):
    (tmp_path / "exiting_module.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    target, reason = BROKEN[case]
    plug(("command", "broken", target), ("command", "greet", GREET))
    with pytest.raises(SystemExit) as caught:
        run("--help")
    assert caught.value.code == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "cannot be loaded from plugin 'plugged'" in out
    assert reason in out
    assert "say hello in 100 % of cases" in out
    assert run("greet", "you") == 0
    assert run("datasets") == 0
    capsys.readouterr()
    assert run("broken") == 1
    err = capsys.readouterr().err
    assert "a fault, not your input" in err
    assert reason in err
    assert "(in command 'broken' of plugin 'plugged')" in err


def test_an_error_inside_a_command_names_its_plugin(plug, capsys):
    def fails(args):
        raise KeyError("lost")

    def wrong_input(args):
        raise InputError("name is wrong")

    plug(("command", "fails", mf.Command("fail", fails)), ("command", "refuses", mf.Command("refuse", wrong_input)))
    assert run("fails") == 1
    assert "KeyError: 'lost' (in command 'fails' of plugin 'plugged')" in capsys.readouterr().err
    assert run("refuses") == 2
    assert capsys.readouterr().err == "metricforge: name is wrong\n"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"help": "", "run": print}, "help must be a non-empty string"),
        ({"help": "x", "run": "nothing"}, "run must be a function or 'package.module:function', got 'nothing'"),
        ({"help": "x", "run": 3}, "run must be a function"),
    ],
)
def test_a_command_is_checked_when_it_is_made(fields, words):
    with pytest.raises(InputError, match=words):
        mf.Command(**fields)


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["demo", "--help"], ["reproduce", "--help"], ["lern"]])
def test_the_parser_loads_nothing_heavy(words):
    code = (
        f"import sys, metricforge.cli.program as cli\ntry:\n    cli.main({words!r})\nexcept SystemExit:\n    pass\n"
        "sys.stderr.write('\\n' + ' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.splitlines()[-1].split())
    assert not {"numpy", "scipy", "sklearn", "dask", "matplotlib"} & loaded


def test_a_command_of_another_distribution_says_how_to_install_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules["metricforge.cli.program"].DISTRIBUTIONS, "sing", "metricforge-songs")
    assert run("sing") == 2
    assert "'sing' is a command of metricforge-songs" in capsys.readouterr().err


def test_standard_output_that_is_closed_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    assert run("plugins") == 2
    assert capsys.readouterr().err.startswith("metricforge: standard output is closed")


def test_a_memory_budget_beyond_any_machine_is_one_sentence(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("METRICFORGE_MEMORY", "1e99")
    (tmp_path / "t.csv").write_text("a,b,c\n" + "1,2,x\n3,4,y\n" * 5)
    assert run("learn", str(tmp_path / "t.csv"), "--label", "c") == 2
    assert "METRICFORGE_MEMORY='1e99' is not an amount of memory" in capsys.readouterr().err
