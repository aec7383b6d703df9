"""Several damages at once, anywhere, of any kind: nothing that is outside of all of them is
lost.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.binlog.scribe import Files
from tests.sampling import share
from tests.tools.salvage.logs import Bytes, Owned, known, log_of, names_of
from tests.tools.salvage.salvaged import salvaged, see_that_it_loads


class Damage(NamedTuple):
    """What happens to a part of a file.

    :ivar filling: what stands there afterwards, repeated; None when the file ends there.
    """

    region: Bytes
    filling: bytes | None

    def done_to(self, files: Files) -> Files:
        """The files after it."""
        name, start, end = self.region
        raw = files[name]
        if self.filling is None:
            return {**files, name: raw[:start]}
        end = min(end, len(raw))
        width = max(0, end - start)
        filling = (self.filling * (width // len(self.filling) + 1))[:width]
        return {**files, name: raw[:start] + filling + raw[start + width :]}


@st.composite
def damages(draw: st.DrawFn, files: Files) -> Damage:
    name = draw(st.sampled_from(names_of(files)))
    size = len(files[name])
    start = draw(st.integers(0, size - 1))
    if draw(st.integers(0, 5)) == 0:
        return Damage(Bytes(name, start, size), None)
    end = min(size, start + draw(st.sampled_from([1, 4, 64, 80, 512, 5000])))
    stray = draw(st.integers(0, size - 64))
    filling = draw(st.sampled_from([b"\0", b"\xff", files[name][stray : stray + 512]]))
    return Damage(Bytes(name, start, end), filling)


def is_outside(owned: Owned, regions: list[Bytes]) -> bool:
    """Whether all that is needed of a job is outside of all regions."""
    if any(part.touches(region) for part in owned.parts for region in regions):
        return False
    return any(
        not any(part.touches(region) for part in name for region in regions) for name in owned.names
    )


@settings(max_examples=share(150), deadline=None)
@given(st.data(), st.sampled_from(["always", "never"]))
def test_what_is_outside_of_all_damages_comes_back(data: st.DataObject, policy: str) -> None:
    sound = files = log_of(policy)
    done = data.draw(st.lists(damages(sound), min_size=2, max_size=6))
    for damage in done:
        files = damage.done_to(files)
    # What was cut off is damaged wherever it is touched again.
    regions = [damage.region for damage in done]
    found = salvaged(files)
    see_that_it_loads(found)
    jobs = known(sound)
    for job_id, owned in jobs.living.items():
        if is_outside(owned, regions):
            assert found.jobs.get(job_id) == owned.job, job_id
    for job_id, parts in jobs.deleted.items():
        if not any(part.touches(region) for part in parts for region in regions):
            assert job_id not in found.jobs


@settings(max_examples=share(100), deadline=None)
@given(st.data())
def test_files_of_anything_are_no_reason_to_fail(data: st.DataObject) -> None:
    """Whole segments exchanged, cut together, or full of noise."""
    files = log_of("always")
    names = names_of(files)
    for name in data.draw(st.lists(st.sampled_from(names), max_size=3)):
        raw = files[data.draw(st.sampled_from(names))]
        cut = data.draw(st.integers(0, len(raw)))
        noise = data.draw(st.binary(max_size=200))
        files = {**files, name: raw[:cut] + noise + files[name][cut:]}
    damaged = {name: b"?" * 4096 + raw[4096:] for name, raw in files.items()}
    see_that_it_loads(salvaged(damaged))
