"""ON-OFF privacy: fetch from an untrusted server with perfect privacy that is switched ON and OFF at will."""

TYPE_CHECKING = False  # as type checkers know it: this comes before everything, and imports nothing

if TYPE_CHECKING:
    from onoff.client.client import Client, Message
    from onoff.client.transport.own import OnoffTransport
    from onoff.client.transport.web import HttpTransport
    from onoff.errors import ChainError, ContextError, NotUnique, OnoffError, PlanError
    from onoff.logs.fitting import Fit, fit
    from onoff.logs.following import Following, follows
    from onoff.model.bounds import Bounds, bounds
    from onoff.model.chain import Chain
    from onoff.model.exact import ExactPosterior
    from onoff.model.posterior import Posterior
    from onoff.model.symmetric import symmetric_inner, symmetric_outer
    from onoff.plans.base import Plan
    from onoff.plans.making import plan
    from onoff.plans.planner import Planner
    from onoff.plans.race import RacePlan
    from onoff.plans.table import TablePlan

__version__: str

# Names are loaded when first used: `onoff --help` must not wait for the numerical libraries. No module may bear
# the name of a public function, since importing it would hide the function.
_HOME = {
    "Bounds": "model.bounds",
    "Chain": "model.chain",
    "ChainError": "errors",
    "Client": "client.client",
    "ContextError": "errors",
    "ExactPosterior": "model.exact",
    "Fit": "logs.fitting",
    "Following": "logs.following",
    "HttpTransport": "client.transport.web",
    "Message": "client.client",
    "NotUnique": "errors",
    "OnoffError": "errors",
    "OnoffTransport": "client.transport.own",
    "Plan": "plans.base",
    "PlanError": "errors",
    "Planner": "plans.planner",
    "Posterior": "model.posterior",
    "RacePlan": "plans.race",
    "TablePlan": "plans.table",
    "plan": "plans.making",
    "symmetric_inner": "model.symmetric",
    "symmetric_outer": "model.symmetric",
    "bounds": "model.bounds",
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
