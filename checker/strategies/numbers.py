"""The numbers that decide an order, a limit or a share of a search, each with what chose it.

"½ to ×2" means: with half of the number and with twice of it, none of 15 planted bugs (every seventh; 200 operations)
is found later. With the number itself they are found after 1 to 126 states.
"""

# -- ranked: how often each phase has its turn while it lasts, so that none holds up the others for long. The evaluation
# halves and doubles each (area: -0.002 to +0.003) and leaves each out; docs/search.md has what that costs on long runs.
WEIGHTS = {
    "invariants": 12,
    "cheap": 12,
    "names": 12,
    "random": 6,
    "plain": 6,
    "carry": 4,
    "members": 8,
    "all sets": 1,
    "rest": 1,
}
FIRST_TURN = 32  # states of a group in its first turn of a phase; twice as many in each further one. ½ to ×2
SITE_PARTS = 8  # first words of one update that count as sites of their own. ½: a word of a header is lost alone later
LINES = 8  # of what one site left unpersisted that are lost one by one. ½ to ×2
QUEUED, QUEUED_MORE = 16, 16  # choices of a phase, and further ones for each that was taken. ½ to ×2
MOST_QUEUED = 1024  # choices of a phase. ½ to ×2
MOST_PENDING = 1 << 16  # pieces at the crash points of what is queued or drawn from: examining a state costs as much

# -- ranked: limits of time and memory
INFERENCE_SHARE = 0.5  # of a budget's seconds: the other half is left for states, which need no invariants
LONG_RUN = 40_000  # events, loads and sites: with fewer, ranking takes a second or two (5 to 10 s for a million events)
EVENTS_A_STATE = 1_000  # of a long run, or sites: ranking so many takes as long as testing a few states
PLAIN_PENDING = 64  # pieces: where more are pending, all or none is lost, not each line of them
MOST_DECIDED = 64  # choices in a row that explored runs have decided: listing what is left then costs less
REMEMBERED = 1 << 20  # states, so that each is given once: 130 MB; then only the exhaustive search continues

# -- random
REPEATS = 100  # states in a row that were given already: new ones have become rare, and the rest are listed
WALK_STEPS = 8  # for each piece of an order that is neither a chain nor layers: near to uniform
MOST_WALK_STEPS = 1 << 16  # 30 ms: of an order of 300,000 pieces the walk would take seconds for one state
