from __future__ import annotations

from pathlib import Path

import pytest
from hostile.foreign import make_foreign
from hostile.opened import FOREIGN, make_sound


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound model, sound predictions and sound folders of every model family."""
    folder = make_sound(tmp_path_factory.mktemp("sound"))
    make_foreign(folder / FOREIGN)
    return folder
