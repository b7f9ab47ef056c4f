"""One driver per contestant, each run as a program in an environment of its own: `python -m ...peers.NAME VERB`.

The verbs: setup (tables), enqueue SECONDS (one per transaction), bulk JOBS (the fastest way), worker CONCURRENCY,
latency JOBS GAP. Drivers import nothing of Django's or of the project's but `marks` and `driver`, except our own.
"""
