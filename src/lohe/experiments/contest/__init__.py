"""Does oscillator attention beat softmax at language modelling? A contest, not of the paper.

`protocol.json` was committed, and amended, before any of its runs. `trials` says what is drawn and
how it is run, `choose` who goes on, `confirm` who won and `verdict` in which words, `law` how
perplexity falls with d_osc, `large` the same comparison of larger models, `further` what longer
windows do, `page` all of it.
"""
