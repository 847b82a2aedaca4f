"""The step loop's parts: scheduler, step records, drafter pool, memory back-off, profiling."""
