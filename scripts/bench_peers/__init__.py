"""The parts of `scripts/bench.py`.

data           the rows, in every format that a peer reads
trial          one peer in one process: its task, its clock, its curve
peers          the list of peers; their code is in streampgs_runs, streaming, vowpal_wabbit, in_memory and loading
converged      the best accuracy of linear models
supervision    starts the processes, chooses settings, repeats
machine        the machine and the versions of packages
report         the table and the plot
quick          ratios of speeds, with the bare training loop in loop
"""
