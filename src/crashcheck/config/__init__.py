"""Reads crashcheck.toml and the options of the command line into one checked value, `Config`.

`load` and `parse` read the file, `override` applies the options.
"""

from crashcheck.config.settings import (
    FAIL_ON,
    FILE_NAME,
    MODELS,
    STRATEGIES,
    TRIED,
    BudgetConfig,
    BuildConfig,
    Config,
    ModelConfig,
    RecordConfig,
    ReportConfig,
    StrategyConfig,
    load,
    override,
    parse,
    parse_duration,
    parse_fault,
)

__all__ = [
    "FAIL_ON",
    "FILE_NAME",
    "MODELS",
    "STRATEGIES",
    "TRIED",
    "BudgetConfig",
    "BuildConfig",
    "Config",
    "ModelConfig",
    "RecordConfig",
    "ReportConfig",
    "StrategyConfig",
    "load",
    "override",
    "parse",
    "parse_duration",
    "parse_fault",
]
