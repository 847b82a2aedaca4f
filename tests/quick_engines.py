"""What processes of engines import ahead in tests: their loads measure one round, and warm nothing up.

Passes of all widths are compared bit by bit as ever; only what they cost is known less well, which no
test may depend on. A load took two seconds more. As tests run side by side, GGUF files get one thread, as
torch does: of two that wait for each other, one often has no core.
"""

import engine.build
import engine.models.gguf.context
import engine.runtime.profiling

engine.models.gguf.context.usable_threads = lambda: 1

engine.runtime.profiling.PROFILE_REPEATS = 1
engine.build.WARM_SECONDS = 0.0
