"""Does oscillator attention beat softmax at language modelling? A contest, not of the paper.

`protocol.json` was committed before any of its runs. `trials` says what is drawn and how it is run,
`choose` who goes on, `confirm` who won, `law` how perplexity falls with d_osc, `page` what the
records say.
"""
