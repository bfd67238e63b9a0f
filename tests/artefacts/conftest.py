"""The artefacts are made once for all workers of a run."""

import pytest

from tests.artefacts.building import Artefacts, artefacts_in


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Artefacts:
    """Wheels, source distributions, and the stages of the Dockerfile, as directories."""
    base = tmp_path_factory.getbasetemp()
    return artefacts_in((base if worker_id == "master" else base.parent) / "artefacts")
