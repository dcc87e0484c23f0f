"""docs/settings.md says what the settings say."""

from __future__ import annotations

from pathlib import Path

from etl_assets import settings_documentation
from etl_assets.environment import VARIABLES
from etl_assets.settings import DomainSettings, Section, Settings

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_is_what_the_settings_say():
    assert PAGE.read_text(encoding="utf-8") == settings_documentation.render(), "write it again: make docs"


def test_every_field_and_every_variable_is_on_the_page():
    sections = [Settings, DomainSettings]
    sections += [f.annotation for f in Settings.model_fields.values() if isinstance(f.annotation, type)]
    names = {
        name
        for section in sections
        if issubclass(section, Section)
        for name in section.model_fields
        if name not in ("home", "file_connections")
    }
    page = settings_documentation.render()
    assert [name for name in names if f"| `{name}` |" not in page] == []
    assert [variable.name for variable in VARIABLES if f"| `{variable.name}` |" not in page] == []


def test_every_field_that_is_no_section_says_what_it_means():
    page = settings_documentation.render()
    assert "|  |" not in page
