"""Settings of all tests: repeatable Hypothesis runs, and no silent skips where everything should be installed."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

IN_CI = os.environ.get("CI") == "true"

settings.register_profile(
    "onoff", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("onoff")


# Tests that share a browser, a cluster or a JVM run in one worker, which then starts it once (`--dist loadgroup`).
SHARING = ("test_page", "test_page_app", "test_fit_spark", "test_public", "test_cells", "test_audit_leaks")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.stem in SHARING:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    items.sort(key=lambda item: item.path.stem not in SHARING)  # the longest first, so that no worker ends long before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """In CI a skip is a failure: what the tests need is installed there."""
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where nothing may be skipped: {report.longrepr}"
    return report
