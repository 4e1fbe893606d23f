"""The stations of a start, in the order `gateway.up` calls them.

`listen` -> `database` -> `children` -> `probe` -> `practice`. None of them knows another, but that children say
how `probe` finds out whether they are ready.
"""
