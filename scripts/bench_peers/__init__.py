"""What `scripts/bench.py` measures, a room each.

data           the rows, in every form that a peer reads
trial          what one peer does in one process: its task, its clock, its curve
peers          who takes part; their code is in streampgs_runs, streaming, vowpal_wabbit, in_memory and loading
converged      the best accuracy that there is to reach
supervision    starts the processes, chooses settings, repeats
report         the machine, the table, the plot
quick          ratios instead of seconds, from the bare loop in loop
"""
