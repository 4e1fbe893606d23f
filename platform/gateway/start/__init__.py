"""The stations of a start, in the order `gateway.up` calls them.

`listen` -> `database` -> `children` -> `probe` -> `practice`. None of them knows another.
"""
