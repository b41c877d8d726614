"""Programs start tuned with Triton 3.3.1 too."""

import other_triton
import pytest


@pytest.mark.parametrize("name", other_triton.TESTS)
def test_programs_start_tuned(name):
    other_triton.run("3.3.1", name)
