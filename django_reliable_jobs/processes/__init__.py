"""What keeps running: threads and code of the project; no SQL.

A worker process has four threads of its own beside the pool that runs jobs:

    worker         claims, hands out, records        (the process's main thread)
    heartbeat      renews the lease, hears of cancel requests
    housekeeping   promotes nothing, rescues, honours, prunes, claims what was passed over
    listener       turns NOTIFY into a wake-up

Each has a database connection of its own, so a worker takes four, and one per pool thread whose job uses the database.
A scheduler (`scheduler`, in a process of its own or in a thread beside a worker) takes three more.
"""
