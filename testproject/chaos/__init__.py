"""Violence on a fleet of real workers, and the audit of what they did: `manage.py chaos --minutes 3 --workers 4`.

    server     a private PostgreSQL, so that it may be crashed
    proxy      the network between the processes and the server, so that it may be cut
    fleet      the workers, kept at their number; `producers` the processes that enqueue, in transactions of their own
    work/      what the jobs do: a module is a kind of work, with its tasks, its way to enqueue and its audit
    monkey     the violence; `witness` what it sees of the work
    audit      what must be true of the tables afterwards, whatever the kind of work
    run        one run from begin to end; `report` what is told of it

To add a kind of work, add a module to `work/` that defines `KIND`.
"""
