"""Columns of any table to rows of numbered features: what each column becomes, learnt once from a sample of the rows."""
