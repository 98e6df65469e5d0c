"""The promise `past`: a request's own query and those before it tell all that will ever be told about it.

Everything here except `draw` is a function of public things: the chain, the sensitive sources, the statuses and the
queries so far. The server could compute it too. There is no I/O; states and steps are frozen. The reader's secret side
of a step is `onoff.client.protocol`. `PublicState` also has the habits, which may change.

    state = PastState.start(chain, sensitive)          after as many ON steps as the chain remembers requests
    step = state.prepare()                             between requests
    query = step.draw(request, reader)                 the one secret act, of a reader in this state of the chain
    state = state.after(query)                         after any step, ON or OFF
    reader = chain.step[reader, request]
"""

from onoff.past.candidates import Candidates
from onoff.past.habits import Habits, PublicState
from onoff.past.race import RaceStep
from onoff.past.state import PastState
from onoff.past.step import StepLaw

__all__ = ["Candidates", "Habits", "PastState", "PublicState", "RaceStep", "StepLaw"]
