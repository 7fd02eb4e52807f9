"""Every test run is the same run: Hypothesis draws the same examples each time, and no deadline depends on how busy the machine is."""

from hypothesis import settings

settings.register_profile("wirelake", derandomize=True, deadline=None)
settings.load_profile("wirelake")
