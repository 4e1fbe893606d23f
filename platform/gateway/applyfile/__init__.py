"""The apply file: a YAML file that declares upstreams, models and organizations, and brings the database to
it.

    nodes      text -> YAML nodes that know their line; bounded, no duplicate keys
    problems   what is wrong with a file, by line and field; all of it at once
    places     a node with its path and file: typed readers that note a problem instead of raising
    later      what this version does not support yet: refused by name, never ignored
    secrets    env:NAME, file:PATH or the literal
    sections/  nodes -> what is declared (`declared`), for upstreams, models, organizations
    steps/     what is declared -> the database, through the services that the console uses too
    applying   the order of the steps, in one transaction; the difference; pruning

A file is read whole before anything is written, and written in one transaction or not at all.
"""
