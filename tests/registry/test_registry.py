from __future__ import annotations

import logging
import types

import numpy as np
import pytest

import metricforge as mf
from metricforge.errors import InputError, PluginError, UnknownNameError
from metricforge.registry import KINDS
from metricforge.registry.components import HOOKS, Registry
from metricforge.registry.hooks import hookimpl
from metricforge.registry.progress import Event

GOOD = """
import metricforge as mf

@mf.hookimpl
def metricforge_register(registrar):
    registrar.add("kernel", "good", "good_plugin:Nothing")
"""

# name -> (source of the module, words its error must hold)
BROKEN = {
    "raises_at_import": ("raise RuntimeError('no licence')", ["import", "RuntimeError: no licence"]),
    "raises_in_hook": (
        GOOD.replace('"kernel", "good"', '"kernel", "half"') + "    raise ValueError('half way')\n",
        ["metricforge_register raised", "ValueError: half way"],
    ),
    "misspelt_hook": (
        GOOD.replace("def metricforge_register", "def metricforge_regsiter"),
        ["unknown hook 'metricforge_regsiter'", "did you mean 'metricforge_register'"],
    ),
    "wrong_signature": (
        GOOD.replace("(registrar)", "(registrar, colour)"),
        ["wrong signature", "colour"],
    ),
    "implements_none": ("x = 1", ["implements no hook", "metricforge_register", "@mf.hookimpl"]),
    "taken_name": (
        GOOD.replace('"kernel", "good"', '"kernel", "fine"').replace("good_plugin:Nothing", "m:C")
        + "    registrar.add('kernel', 'rbf', 'm:C')\n",
        ["kernel 'rbf'", "taken by plugin 'standard'", "'taken_name'"],
    ),
}


def install(folder, name, source):
    """Lay out an installed distribution: a module and the metadata that carries its entry point."""
    (folder / f"{name}_plugin.py").write_text(source)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[metricforge]\n{name} = {name}_plugin\n")


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plugin_is_refused_whole_and_the_others_unharmed(name, tmp_path, monkeypatch):
    source, words = BROKEN[name]
    install(tmp_path, name, source)
    install(tmp_path, "good", GOOD)
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry()
    listed = {p.name: p for p in registry.plugins()}
    refused = listed[name]
    assert not refused.ok
    assert (refused.distribution, refused.version) == (name, "1.0")
    for word in words:
        assert word in refused.error, refused.error
    assert refused.entries == ()
    kernels = {e.name for e in registry.entries("kernel")}
    assert not kernels & {"half", "fine"}  # nothing of it stays behind
    assert {"good", "rbf"} <= kernels
    assert listed["good"].ok
    assert listed["standard"].ok
    assert registry.entry("kernel", "rbf").plugin == "standard"


def test_a_plugin_that_exits_on_import_does_not_end_the_program(tmp_path, monkeypatch):
    install(tmp_path, "quitter", "import sys; sys.exit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    assert "SystemExit: 3" in next(p.error for p in Registry().plugins() if p.name == "quitter")


def test_forgetting_the_decorator_is_named(tmp_path, monkeypatch):
    install(tmp_path, "bare", GOOD.replace("@mf.hookimpl", ""))
    monkeypatch.syspath_prepend(tmp_path)
    assert "lacks the decorator @mf.hookimpl" in next(p.error for p in Registry().plugins() if p.name == "bare")


def plugin(**functions):
    module = types.ModuleType("made")
    for name, function in functions.items():
        setattr(module, name, hookimpl(function))
    return module


def adding(*calls):
    def metricforge_register(registrar):
        for args in calls:
            registrar.add(*args)

    return plugin(metricforge_register=metricforge_register)


def test_registering_by_hand_raises_and_can_be_repaired():
    registry = Registry()
    registry.plugins()
    with pytest.raises(
        PluginError, match=r"'mine' was refused.*'linear' of plugin 'mine' is taken by plugin 'standard'"
    ):
        registry.register(adding(("kernel", "new", "m:C"), ("kernel", "linear", "m:C")), name="mine")
    with pytest.raises(UnknownNameError):
        registry.entry("kernel", "new")
    registry.register(adding(("kernel", "new", "m:C")), name="mine")
    assert registry.entry("kernel", "new").plugin == "mine"
    assert next(p for p in registry.plugins() if p.name == "mine").ok
    with pytest.raises(PluginError, match="'mine' was refused: its name is taken"):
        registry.register(adding(("kernel", "newer", "m:C")), name="mine")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("kernle", "a", "m:C"), ["kind='kernle' is unknown", "did you mean 'kernel'"]),
        (("kernel", "", "m:C"), ["name must be a non-empty string"]),
        (("kernel", "a", "m.C"), ["package.module:attribute", "'m.C'"]),
        (("method", "auto", "m:C"), ["method 'auto'", "reserved"]),
        (("eigensolver", "dense", "m:C"), ["eigensolver 'dense'", "reserved"]),
        (("command", "Do_It", "m:C"), ["command 'Do_It'", "lower-case letters", "'my-command'"]),
        (("command", "-x", "m:C"), ["command '-x'"]),
        (("namespace", "learn", "m"), ["namespace 'learn' would hide metricforge.learn"]),
        (("namespace", "cli", "m"), ["namespace 'cli' would hide metricforge.cli"]),
        (("namespace", "a-b", "m"), ["namespace 'a-b'", "public Python name"]),
        (("namespace", "_a", "m"), ["namespace '_a'", "public Python name"]),
        (("namespace", "class", "m"), ["namespace 'class'", "public Python name"]),
        (("namespace", "mine", "m:"), ["package.module:attribute", "'m:'"]),
    ],
)
def test_wrong_additions_are_refused(call, words):
    registry = Registry(discover=False)
    with pytest.raises(PluginError) as caught:
        registry.register(adding(call), name="mine")
    for word in words:
        assert word in str(caught.value)


def test_the_same_name_twice_in_one_plugin_is_refused():
    with pytest.raises(PluginError, match="taken by plugin 'mine'"):
        Registry(discover=False).register(adding(("kernel", "a", "m:C"), ("kernel", "a", "m:D")), name="mine")


def test_targets_are_imported_on_first_use_and_errors_gain_a_note():
    registry = Registry(discover=False)
    registry.register(adding(("kernel", "ghost", "no_such_module:C"), ("kernel", "hole", "math:nothing")), name="mine")
    for name, error in (("ghost", ModuleNotFoundError), ("hole", AttributeError)):
        with pytest.raises(error) as caught:
            registry.get("kernel", name)
        assert any("of plugin 'mine'" in note for note in caught.value.__notes__)


def test_missing_requirements_are_named_without_importing():
    def metricforge_register(registrar):
        registrar.add("solver", "far", "m:C", requires=["not_installed_at_all"], install="pip install far-away")

    registry = Registry(discover=False)
    registry.register(plugin(metricforge_register=metricforge_register), name="mine")
    assert registry.entry("solver", "far").missing == ("not_installed_at_all",)
    with pytest.raises(InputError, match="needs not_installed_at_all; pip install far-away"):
        registry.get("solver", "far")


def test_unknown_names_offer_the_nearest():
    with pytest.raises(UnknownNameError, match="kernel='rfb' is unknown; did you mean 'rbf'"):
        mf.kernels and Registry().get("kernel", "rfb")


def test_every_registered_target_exists():
    registry = Registry()
    for kind in KINDS:
        assert registry.entries(kind) or kind == "namespace", f"nothing of kind {kind} ships"
        for entry in registry.entries(kind):
            if not entry.missing:  # PRIMME is an extra
                entry.load()


def test_registered_searches_and_eigensolvers_can_be_handed_to_the_functions_that_use_them():
    registry = Registry()
    X = np.random.default_rng(0).normal(size=(50, 3))
    found = [mf.neighbors.search(X, 4, method=registry.get("neighbors", name))[0] for name in ("exact", "tree")]
    np.testing.assert_array_equal(*found)
    A = np.diag(np.arange(800.0))
    for entry in registry.entries("eigensolver"):
        if not entry.missing:
            np.testing.assert_allclose(mf.eigen.top(A, 3, solver=entry.load(), seed=0)[0], [799, 798, 797])


def test_what_ships_is_taken_in():
    bad = [p.error for p in mf.plugins() if p.distribution == "metricforge" and not p.ok]
    assert bad == []
    assert "euclidean" in [e.name for e in mf.methods()]


def test_a_foreign_conversion_is_an_edge_like_any_other():
    def to_triplets(pairs, *, seed=0):
        similar, dissimilar = dict(pairs.similar.tolist()), dict(pairs.dissimilar.tolist())
        triples = [(i, similar[i], dissimilar[i]) for i in sorted(set(similar) & set(dissimilar))]
        return mf.Triplets(triples, n=pairs.n, dropped=pairs.size - len(triples))

    registry = Registry()
    registry.plugins()
    registry.register(adding(("conversion", "pairs->triplets", to_triplets)), name="mine")
    pairs = mf.Pairs([(0, 1)], [(0, 2)], n=3)
    made, said = registry.convert(pairs, (mf.Triplets,), seed=0)
    assert made.triples.tolist() == [[0, 1, 2]]
    assert said == ("Pairs (2) → Triplets (1), 1 dropped",)
    _, said = registry.convert(mf.Chunklets([0, 0, 1]), (mf.Triplets,), seed=0)
    assert len(said) == 2


# ------------------------------------------------------------------------------------------------------------ progress


def test_every_listener_hears_every_step_and_a_broken_one_is_silenced(caplog):
    heard = []

    def good(event):
        heard.append(event.step)

    def bad(event):
        raise RuntimeError("broken bar")

    registry = Registry(discover=False)
    registry.register(plugin(metricforge_step=good), name="good")
    registry.register(plugin(metricforge_step=bad), name="bad")
    with caplog.at_level(logging.ERROR):
        for k in range(3):
            registry.step(Event("fit", k))
    assert heard == [0, 1, 2]
    assert len([r for r in caplog.records if "'bad' failed in metricforge_step" in r.getMessage()]) == 1


def test_a_listener_may_ignore_the_event():
    heard = []
    registry = Registry(discover=False)
    registry.register(plugin(metricforge_step=lambda: heard.append(1)), name="deaf")
    registry.step(Event("fit"))
    assert heard == [1]


def test_hooks_are_documented():
    import metricforge.registry.hooks as specs

    for name in HOOKS:
        assert len(getattr(specs, name).__doc__) > 80


def test_discovery_is_safe_from_many_threads():
    from concurrent.futures import ThreadPoolExecutor

    registry = Registry()
    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda _: len(registry.entries("kernel")), range(32)))
    assert len(np.unique(counts)) == 1


# --------------------------------------------------------------------------------------------------------- hard cases


def test_a_plugin_that_cannot_be_hashed_is_refused_and_harms_nobody():
    from dataclasses import dataclass

    @dataclass
    class Loose:
        @hookimpl
        def metricforge_register(self, registrar):
            registrar.add("kernel", "loose", "m:C")

    registry = Registry(discover=False)
    with pytest.raises(PluginError, match="cannot be hashed; freeze the dataclass"):
        registry.register(Loose(), name="loose")
    registry.register(adding(("kernel", "new", "m:C")), name="mine")
    assert [e.name for e in registry.entries("kernel")] == ["new"]


def test_an_interrupt_in_a_hook_leaves_nothing_behind():
    def metricforge_register(registrar):
        raise KeyboardInterrupt

    registry = Registry(discover=False)
    with pytest.raises(KeyboardInterrupt):
        registry.register(plugin(metricforge_register=metricforge_register), name="mine")
    registry.register(adding(("kernel", "new", "m:C")), name="mine")


def test_an_object_that_will_not_be_looked_at():
    class Shy:
        def __dir__(self):
            raise RuntimeError("go away")

    with pytest.raises(PluginError, match="inspecting it raised RuntimeError: go away"):
        Registry(discover=False).register(Shy(), name="shy")


def test_a_command_that_is_taken_is_refused_with_both_owners():
    registry = Registry()
    registry.plugins()
    with pytest.raises(PluginError, match="command 'learn' of plugin 'mine' is taken by plugin 'standard'"):
        registry.register(adding(("command", "learn", "m:C")), name="mine")


def test_strangers_cannot_take_the_names_of_what_ships(tmp_path, monkeypatch):
    install(tmp_path, "acme", GOOD.replace('"kernel", "good"', '"method", "euclidean"'))
    source = GOOD.replace('"kernel", "good"', '"kernel", "other"')
    install(tmp_path, "euclidean", source)  # an entry point of the same name, from another distribution
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry()
    assert registry.entry("method", "euclidean").target.startswith("metricforge_plugins.")
    refused = {(p.name, p.distribution): p.error for p in registry.plugins() if not p.ok}
    assert "taken by plugin 'euclidean'" in refused["acme", "acme"]
    assert "its name is taken by metricforge" in refused["euclidean", "euclidean"]


def test_requirements_inside_packages_that_are_not_there():
    def metricforge_register(registrar):
        registrar.add("solver", "far", "m:C", requires="nope.sub")

    registry = Registry(discover=False)
    registry.register(plugin(metricforge_register=metricforge_register), name="mine")
    assert repr(registry.entries("solver")) == "[<solver 'far' from mine, needs nope.sub>]"


def test_a_conversion_to_a_kind_under_another_name_is_refused(plugged):
    class Comparison(mf.Triplets):
        pass

    def convert(triplets, *, seed):
        return triplets

    kinds = {"constraint": {"comparison": Comparison}}
    with (
        pytest.raises(PluginError, match=r"'triplets->comparisons' names a constraint 'comparisons'.*'comparison'"),
        plugged(**kinds, conversion={"triplets->comparisons": convert}),
    ):
        pass
    with plugged(**kinds, conversion={"triplets->comparison": convert}):
        assert isinstance(mf.Triplets([(0, 1, 2)], n=3).to("comparison"), mf.Triplets)
