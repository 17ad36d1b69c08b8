"""Files are written under another name and renamed."""

from __future__ import annotations

from metricforge.files import atomic as files


def test_writing_beside_a_link_replaces_what_it_stands_for(tmp_path):
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    files.write(tmp_path / "link.csv", b"new")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text() == "new"
