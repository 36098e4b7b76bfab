"""Options of kernel features, which a linear solver takes in place of the features of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streampgs.base.errors import OptionError
from streampgs.options.fields import COMMON, MODEL, Choice, Number, option
from streampgs.options.solvers import SOLVERS

MOST_DEGREE, MOST_KERNEL_FEATURES = 8, 1 << 16


@dataclass(frozen=True)
class KernelOptions:
    """The kernel, its parameters and the number of features."""

    # fmt: off
    kernel: Literal["rbf", "polynomial"] | None = option(None, Choice(names=("rbf", "polynomial")), COMMON,
        "Train a model that is not linear. rbf compares the distances of rows, polynomial multiplies features "
        "(docs/kernels.md).", shown="none: a linear model")
    gamma: float | Literal["auto"] = option("auto", Number("X", 0.0, above=True, words=("auto",)), MODEL,
        "For --kernel: larger values let the model change over shorter distances. auto: 1 / (features · their variance).")
    degree: int = option(2, Number("D", 1, MOST_DEGREE, whole=True, remedy="2 are products of two features"), MODEL,
        "For `--kernel polynomial`: number of features in a product, at most.")
    kernel_features: int = option(1024,
        Number("N", 2, MOST_KERNEL_FEATURES, whole=True, remedy="1024 is a start; more are slower and more accurate"), MODEL,
        "For --kernel: number of features that approximate the kernel, at most.")
    # fmt: on

    def check_kernel(self, solver: str) -> None:
        own = [
            name
            for name in ("gamma", "degree", "kernel_features")
            if getattr(self, name) != getattr(KernelOptions, name)
        ]
        if solver == "kernel":
            if self.kernel is None:
                raise OptionError("`--solver kernel` without --kernel", "give `--kernel rbf` or `--kernel polynomial`")
            if "kernel_features" in own:
                raise OptionError(
                    "--kernel-features with `--solver kernel`", "give the number of support rows with --supports"
                )
        if self.kernel is None and own:
            raise OptionError(
                f"--{own[0].replace('_', '-')} without --kernel",
                "give `--kernel rbf` or `--kernel polynomial`, or leave it out",
            )
        if self.kernel is not None and SOLVERS[solver].needs.columns:
            raise OptionError(
                f"--kernel with `--solver {solver}`, which reads columns", "use a solver that reads rows, such as pgs"
            )
        if self.kernel == "rbf" and "degree" in own:
            raise OptionError("--degree with `--kernel rbf`", "use it with `--kernel polynomial`, or leave it out")
