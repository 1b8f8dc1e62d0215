from __future__ import annotations

from pathlib import Path

import pytest
from hostile.opened import make_sound


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound model and sound predictions."""
    return make_sound(tmp_path_factory.mktemp("sound"))
