"""What processes of engines import ahead in tests: their loads measure one round, and warm nothing up.

Passes of all widths are compared bit by bit as ever; only what they cost is known less well, which no
test may depend on. A load took two seconds more.
"""

import engine.build
import engine.runtime.profiling

engine.runtime.profiling.PROFILE_REPEATS = 1
engine.build.WARM_SECONDS = 0.0
