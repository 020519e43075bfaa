"""Where system calls and stores are made: which function a site of a call stack is in, and what it is called.

A site is one of machine code, an offset in a program or library; one of a function of a script, in its source; or one
of code that crashcheck-cc built, which the program facts describe. Instrumented code records its own stacks, of its
sites alone; below the functions of scripts are the libraries that they call, and those of programs that they run.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from dataclasses import dataclass, field

from crashcheck.analyzer.behaviours.numbers import CALLERS
from crashcheck.analyzer.trace.functions import FunctionNames
from crashcheck.analyzer.trace.reader import Facts, Trace

Frames = tuple[int, ...]  # sites, innermost first


@dataclass(frozen=True, eq=False)
class CallPlaces:
    """The sites of one trace."""

    trace: Trace
    facts: Facts | None = None
    _names: FunctionNames = field(default_factory=FunctionNames)

    def frames(self, call: int) -> Frames:
        """The known sites of a call and its callers. `call` is a number of `calls_of`."""
        return tuple(site for site in (call >> 32, *self.trace.stack(call & 0xFFFFFFFF)) if self._is_known(site))

    def _is_known(self, site: int) -> bool:
        return site in self.trace.call_sites or self.trace.unit_of(site) is not None

    def is_instrumented(self, site: int) -> bool:
        """Whether crashcheck-cc built the code: then the innermost site is no place in a library."""
        return site not in self.trace.call_sites

    def is_scripted(self, site: int) -> bool:
        """Whether it is a line of a script."""
        call = self.trace.call_sites.get(site)
        return call is not None and bool(call.name)

    def shows(self, frames: Frames) -> bool:
        """Whether frames show who made a call: not only that it was made, and no code that was compiled at run time."""
        if frames and self.is_instrumented(frames[0]):
            return True
        return len(frames) > 1 and all(self.module(site) for site in frames)

    def module(self, site: int) -> str:
        """The program or library that a site is in; "" for code that no file holds."""
        call = self.trace.call_sites.get(site)
        if call is not None:
            return call.module
        unit = self.trace.unit_of(site)
        return unit.module_path if unit is not None else ""

    def function(self, site: int) -> Hashable:
        """A function, or, where it is not known where it begins, the place."""
        call = self.trace.call_sites.get(site)
        if call is not None:
            start = self._names.start(call)
            return (call.module, start, call.name) if start else site
        unit, described = self.trace.unit_of(site), self.trace.site(site, self.facts)
        if unit is None or described is None:
            return site
        return unit.module_path, unit.key, described.positions[-1].function  # the one that others were inlined into

    def name(self, site: int) -> str:
        """What the function of a site is called."""
        call = self.trace.call_sites.get(site)
        if call is not None:
            return self._names.name(call)
        described = self.trace.site(site, self.facts)
        return str(described.positions[-1].function) if described is not None else os.path.basename(self.module(site))

    def own(self, frames: Frames) -> Frames:
        """The call and the innermost callers outside of the library that makes it."""
        if not frames or self.is_instrumented(frames[0]):
            return frames[: 1 + CALLERS]
        library = self.module(frames[0])
        outside = [site for site in frames[1:] if self.module(site) != library]
        return (frames[0], *(outside[:CALLERS] or frames[1 : 2 * CALLERS + 1]))

    def caller_of(self, frames: Frames) -> str:
        """The function that makes a call, "" if it is not known."""
        if not frames:
            return ""
        return self.name(frames[0 if len(frames) == 1 or self.is_instrumented(frames[0]) else 1])
