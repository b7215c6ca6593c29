"""What cannot be read is left out, and a line of the log says so."""

from __future__ import annotations

import logging

from specviz.lab import recordings
from specviz.zoo import found_weights, requirements


def test_a_config_that_cannot_be_read_is_logged(tmp_path, caplog):
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "config.json").write_text("{")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    with caplog.at_level(logging.WARNING):
        assert found_weights._marked(tmp_path) == []
    assert [record.args[0] for record in caplog.records] == [tmp_path / "head" / "config.json"]


def test_a_damaged_datastore_is_logged(tmp_path, caplog):
    (tmp_path / "store.json").write_text("{")
    with caplog.at_level(logging.WARNING):
        assert not requirements._opens(tmp_path, "mark", 1)
    assert [record.args[0] for record in caplog.records] == [tmp_path]


def test_titles_of_recordings_that_cannot_be_read_are_logged(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        assert recordings._index(tmp_path) == {} and not caplog.records  # there are none
        (tmp_path / "index.yaml").write_text("{")
        assert recordings._index(tmp_path) == {}
    assert [record.args[0] for record in caplog.records] == [tmp_path]
