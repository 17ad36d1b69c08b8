"""Files are written under another name and renamed."""

from __future__ import annotations

import os

import pytest

from metricforge.files import atomic as files


def test_writing_beside_a_link_replaces_what_it_stands_for(tmp_path):
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    files.write(tmp_path / "link.csv", b"new")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text() == "new"


def test_a_signal_just_after_the_file_was_made_leaves_nothing(tmp_path, monkeypatch):
    opened = os.open

    def interrupted(path, *args, **options):
        handle = opened(path, *args, **options)
        if str(path).endswith(".part"):
            os.close(handle)
            raise KeyboardInterrupt
        return handle

    monkeypatch.setattr(os, "open", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write(tmp_path / "a.metric", b"new")
    assert list(tmp_path.iterdir()) == []
