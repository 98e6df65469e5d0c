"""The promise `past`: past private requests and sensitive sources stay hidden, and nothing has to be announced.

Everything here except `StepLaw.draw` is a function of public things: the chain, the sensitive set, the statuses and the
queries so far. The server could compute it too. There is no I/O; states and steps are frozen. The reader's side of a
step, with what is secret, is `onoff.client.protocol`. `PublicState` has the rows with the habits, which may change.

    state = PastState.start(chain, sensitive)          after a step that was made ON
    context = state.context(request, None, private=True)
    step = state.prepare()                            between requests
    query = step.draw(request, context)               the one secret act
    state = state.advance(step, query)
    context = state.context(request, context, private=False)
"""

from onoff.past.habits import Habits, PublicState
from onoff.past.state import PastState, StepLaw

__all__ = ["Habits", "PastState", "PublicState", "StepLaw"]
