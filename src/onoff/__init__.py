"""ON-OFF privacy: fetch from an untrusted server with perfect privacy that is switched ON and OFF at will."""

TYPE_CHECKING = False  # as type checkers know it: this comes before everything, and imports nothing

if TYPE_CHECKING:
    from onoff import errors as errors
    from onoff.client.client import Client as Client
    from onoff.client.connect import Settings as Settings
    from onoff.client.connect import connect as connect
    from onoff.client.message import Message as Message
    from onoff.client.programs import httpx_transport as httpx_transport
    from onoff.client.sync import connect_sync as connect_sync
    from onoff.client.transports.onoff import OnoffTransport as OnoffTransport
    from onoff.client.transports.web import HttpTransport as HttpTransport
    from onoff.errors import OnoffError as OnoffError
    from onoff.logs.fit import Fit as Fit
    from onoff.logs.fit import fit as fit
    from onoff.logs.follow import follows as follows
    from onoff.model.bounds import Bounds as Bounds
    from onoff.model.bounds import bounds as bounds
    from onoff.model.chain import Chain as Chain
    from onoff.model.posterior import Posterior as Posterior
    from onoff.plans.plan import Plan as Plan
    from onoff.plans.plan import plan as plan
    from onoff.plans.planner import Planner as Planner

__version__: str

# Names are loaded when first used: `onoff --help` must not wait for the numerical libraries. No module may bear
# the name of a public function, since importing it would hide the function.
_HOME = {
    "Bounds": "model.bounds",
    "Chain": "model.chain",
    "Client": "client.client",
    "Fit": "logs.fit",
    "HttpTransport": "client.transports.web",
    "Message": "client.message",
    "OnoffError": "errors",
    "OnoffTransport": "client.transports.onoff",
    "Plan": "plans.plan",
    "Planner": "plans.planner",
    "Posterior": "model.posterior",
    "Settings": "client.connect",
    "bounds": "model.bounds",
    "connect": "client.connect",
    "connect_sync": "client.sync",
    "fit": "logs.fit",
    "follows": "logs.follow",
    "httpx_transport": "client.programs",
    "plan": "plans.plan",
}

__all__ = ["errors", *_HOME]  # noqa: PLE0604


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
