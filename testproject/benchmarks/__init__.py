"""How fast, how steady, and beside whom: `manage.py benchmark`.

`contestants` says who is measured and `peers` drives each of them, us included, by the same verbs. `arena` is where
they run: a private server, a database per run, worker processes. `measures` holds one module per question; each lets
its contestants run by turns, round after round, so that what disturbs the machine disturbs all. `report` compares.
"""
