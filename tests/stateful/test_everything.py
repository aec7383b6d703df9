"""Clients use all commands on one server, whose process ends now and then: each hears what the
`Model` says, and all jobs are listed as it has them.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.sampling import share
from tests.stateful.scenes import Scenes

ALL_EXAMPLES = 300
EXAMPLES = share(ALL_EXAMPLES, 10)

STEPS = 50


def test_all_commands_together_do_what_the_model_says() -> None:
    run_state_machine_as_test(
        Scenes,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, derandomize=True
        ),
    )
