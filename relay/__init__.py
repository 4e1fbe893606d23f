"""The data plane: what happens between a program's request and the upstream's answer.

A call walks forward through stations, and `pipeline` is the only file that knows their order:

    consumers   the ASGI edge: path, body, the client's hang-up
    admission   whose key is this (`authenticate`), may it be used so (`permit`, `holds`)
    scheduler   which upstreams, in which order (pure)
    upstreams   the connection pool, one attempt, what a failure means
    translate, protocols   the dialects (pure): read, edit, render; usage counted in passing
    metering    marks of time, the endings, the journal, its way to `billing.ingest`
    state       what all of them read: a snapshot in memory, published by the control plane

Rules of the house: the control plane writes tables and the data plane reads the snapshot, never the ORM; no Django is
set up here. A call's body exists once. Until the first *content* has gone to the client another upstream may be tried,
afterwards never. The books of a call are closed once, in every ending, before its last bytes leave. Money, keys and
limits fail closed. Imports go consumers -> pipeline -> admission, metering -> upstreams -> scheduler, translate ->
state -> protocols, call, errors, and never back.
"""
