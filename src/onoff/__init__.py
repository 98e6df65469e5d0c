"""ON-OFF privacy: fetch from an untrusted server with perfect privacy that is switched ON and OFF at will."""

TYPE_CHECKING = False  # as type checkers know it: this comes before everything, and imports nothing

if TYPE_CHECKING:
    from onoff import errors
    from onoff.client.client import Client
    from onoff.client.connect import Settings, connect
    from onoff.client.message import Message
    from onoff.client.sync import connect_sync
    from onoff.client.transport.own import OnoffTransport
    from onoff.client.transport.web import HttpTransport
    from onoff.errors import OnoffError
    from onoff.logs.fitting import Fit, fit
    from onoff.logs.following import follows
    from onoff.model.bounds import Bounds, bounds
    from onoff.model.chain import Chain
    from onoff.model.posterior import Posterior
    from onoff.plans.plan import Plan, plan
    from onoff.plans.planner import Planner

__version__: str

# Names are loaded when first used: `onoff --help` must not wait for the numerical libraries. No module may bear
# the name of a public function, since importing it would hide the function.
_HOME = {
    "Bounds": "model.bounds",
    "Chain": "model.chain",
    "Client": "client.client",
    "Fit": "logs.fitting",
    "HttpTransport": "client.transport.web",
    "Message": "client.message",
    "OnoffError": "errors",
    "OnoffTransport": "client.transport.own",
    "Plan": "plans.plan",
    "Planner": "plans.planner",
    "Posterior": "model.posterior",
    "Settings": "client.connect",
    "bounds": "model.bounds",
    "connect": "client.connect",
    "connect_sync": "client.sync",
    "fit": "logs.fitting",
    "follows": "logs.following",
    "plan": "plans.plan",
}

__all__ = [
    "Bounds",
    "Chain",
    "Client",
    "Fit",
    "HttpTransport",
    "Message",
    "OnoffError",
    "OnoffTransport",
    "Plan",
    "Planner",
    "Posterior",
    "Settings",
    "bounds",
    "connect",
    "connect_sync",
    "errors",
    "fit",
    "follows",
    "plan",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("onoff-privacy")
    from importlib import import_module

    if name == "errors":
        return import_module("onoff.errors")
    if name not in _HOME:
        raise AttributeError(f"module 'onoff' has no attribute {name!r}")
    value = getattr(import_module(f"onoff.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
