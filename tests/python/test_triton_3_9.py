"""Programs start tuned with Triton 3.9.0 too."""

import other_triton
import pytest


@pytest.mark.parametrize("name", other_triton.TESTS)
def test_programs_start_tuned(name):
    other_triton.run("3.9.0", name)
