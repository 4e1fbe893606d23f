"""The composition root: settings, servers, routing, Celery, the launcher.

This is the only room that knows all the others. It reads the environment (`env`, `secret_store`; nobody else does),
starts what is missing (`up`, `embedded`: a real PostgreSQL and a real Valkey), and puts together the two kinds of
server process:

    relay      one per core, `relay_asgi`: the data plane, and a hand-over of every other path to the console. It never
               runs a Django view, for one busy thread beside the event loop costs milliseconds on every call.
    console    `console_asgi`: Django's pages and the control API, behind a unix socket.

Beside them Celery's worker and beat (`celery`), and, while a practice model is on offer, the practice upstream. `asgi`
is both in one process, for `runserver` and Daphne.

Connections to PostgreSQL take on one of three roles that are no superusers (`database`): the owner for migrations, the
application's, and the one that inserts usage. What an operator can set is an environment variable, a secret is made
once and kept beside the data, and there is no default password anywhere.

Imports go downwards: gateway -> console -> catalogue -> relay -> billing -> accounts; `practice` imports none of them.
"""
