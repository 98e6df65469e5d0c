"""ON-OFF privacy: fetch from an untrusted server with perfect privacy that is switched ON and OFF at will."""

TYPE_CHECKING = False  # as type checkers know it: this comes before everything, and imports nothing

if TYPE_CHECKING:
    from onoff.chain import Chain
    from onoff.client import Client, Message
    from onoff.errors import ChainError, ContextError, NotUnique, OnoffError, PlanError
    from onoff.exact import ExactPosterior
    from onoff.limits import Bounds, bounds
    from onoff.logs.fitting import Fit, fit
    from onoff.logs.following import Following, follows
    from onoff.planner import Planner
    from onoff.planning import plan
    from onoff.plans import Plan
    from onoff.posterior import Posterior
    from onoff.raceplan import RacePlan
    from onoff.symmetric import symmetric_inner, symmetric_outer
    from onoff.tableplan import TablePlan
    from onoff.transport.http import HttpTransport
    from onoff.transport.onoff import OnoffTransport

__version__: str

# Names are loaded when first used: `onoff --help` must not wait for the numerical libraries. No module may bear
# the name of a public function, since importing it would hide the function.
_HOME = {
    "Bounds": "limits",
    "Chain": "chain",
    "ChainError": "errors",
    "Client": "client",
    "ContextError": "errors",
    "ExactPosterior": "exact",
    "Fit": "logs.fitting",
    "Following": "logs.following",
    "HttpTransport": "transport.http",
    "Message": "client",
    "NotUnique": "errors",
    "OnoffError": "errors",
    "OnoffTransport": "transport.onoff",
    "Plan": "plans",
    "PlanError": "errors",
    "Planner": "planner",
    "Posterior": "posterior",
    "RacePlan": "raceplan",
    "TablePlan": "tableplan",
    "plan": "planning",
    "symmetric_inner": "symmetric",
    "symmetric_outer": "symmetric",
    "bounds": "limits",
    "fit": "logs.fitting",
    "follows": "logs.following",
}

__all__ = [
    "Bounds",
    "Chain",
    "ChainError",
    "Client",
    "ContextError",
    "ExactPosterior",
    "Fit",
    "Following",
    "HttpTransport",
    "Message",
    "NotUnique",
    "OnoffError",
    "OnoffTransport",
    "Plan",
    "PlanError",
    "Planner",
    "Posterior",
    "RacePlan",
    "TablePlan",
    "bounds",
    "fit",
    "follows",
    "plan",
    "symmetric_inner",
    "symmetric_outer",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("onoff-privacy")
    if name not in _HOME:
        raise AttributeError(f"module 'onoff' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"onoff.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
