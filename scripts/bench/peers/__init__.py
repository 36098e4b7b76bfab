"""Seconds of streampgs and its peers to a target accuracy: `python -m scripts.bench.peers`.

data           the rows, in every format that a peer reads
trial          one peer in one process: its task, its clock, its curve
peers          the list of peers; their code is in streampgs_runs, streaming, vowpal_wabbit, in_memory and loading
converged      the best accuracy of linear models
supervision    starts the processes, chooses settings, repeats
report         the table and the plot
quick          ratios of speeds, with the bare training loop of scripts/bench/bare_loop.py
"""
