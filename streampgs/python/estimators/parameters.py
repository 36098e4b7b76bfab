"""The parameters that both estimators have: each is written once, and a dataclass makes the constructors from them."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any


@dataclass(repr=False, eq=False)
class Parameters:
    """sigma : weight of the regularizer, or 'auto' to find it
    p : exponent of the regularizer's norm, in (1, 2], or 'auto'
    solver : how the model is trained, as for `streampgs.train`; l1, ball, step are options of some solvers
    epochs : passes over the rows; None chooses by the number of rows
    standardize : 'auto', 'on' or 'off', for columns of numbers
    kernel : None, 'rbf' or 'polynomial': a model that is not linear; gamma, degree, kernel_features and (with
        solver='kernel') supports as for `streampgs.train`
    features, ignore, category, text, cross, cyclic : columns of a table, as for `streampgs.train`
    ngrams, char_ngrams, text_weights, null_flags, hash_bits, hash_seed, vocabulary : how columns of a table become
        features, as for `streampgs.train`
    random_state : seed of the order of rows; None counts as 0
    threads : threads that train at the same time
    memory : rows that take more are trained on from temporary files; None: 512MB, or less on a small machine
    """

    loss: Any = "logistic"
    _: KW_ONLY
    sigma: Any = "auto"
    p: Any = 2.0
    solver: str = "pgs"
    l1: Any = None
    ball: Any = None
    step: Any = "auto"
    epochs: int | None = None
    standardize: str = "auto"
    kernel: str | None = None
    gamma: Any = "auto"
    degree: int = 2
    kernel_features: int = 1024
    supports: int = 4096
    features: Any = ()
    ignore: Any = ()
    category: Any = ()
    text: Any = ()
    ngrams: Any = None
    char_ngrams: Any = None
    text_weights: str = "tf-idf"
    cross: Any = ()
    cyclic: Any = ()
    null_flags: bool = False
    hash_bits: int | None = None
    hash_seed: int = 0
    vocabulary: bool = False
    random_state: Any = None
    threads: int = 1
    memory: Any = None
