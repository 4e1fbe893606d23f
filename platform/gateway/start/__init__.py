"""The stations of a start, in the order `gateway.up` calls them.

`listen` -> `children`, who load their code and wait at the `gate` -> `database` -> `probe` -> `practice`. None of
them knows another, but that children say how `probe` finds out whether they are ready.
"""
