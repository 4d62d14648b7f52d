import pytest
from sweeping import BESIDE, STUDY


@pytest.fixture(scope="session")
def study_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    (folder / "beside.py").write_text(BESIDE)
    (folder / "slow_rounds.py").write_text(STUDY)
    return folder / "slow_rounds.py"
